#include "study/scoring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file_state.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "config/section.hpp"
#include "study/service.hpp"

namespace kvcast::study {
namespace {

// The name of the model's file if it is found by it, otherwise the choice as the run gives it.
std::string model_of(const config::Run& run) {
  const auto named = config::find_config_if_any("models", run.model.name, {});
  config::Model as_read = run.model;  // except for the changes of a deployment
  if (named) {
    const config::Model file = config::read_model(*named);
    as_read.weights = file.weights, as_read.expert_weights = file.expert_weights;
    as_read.shared_weights = file.shared_weights, as_read.cache = file.cache;
  }
  const bool same = named && config::canonical(config::read_model(*named)) == config::canonical(as_read);
  return same ? run.model.name : config::choice_text(*run.source.find("model"));
}

}  // namespace

result::BenchmarkScore score_of_stream(const std::vector<ScoreAt>& lengths) {
  result::BenchmarkScore out = lengths.front().score;
  if (lengths.size() == 1) return out;
  std::map<std::string, result::BenchmarkTask> tasks;
  double all = 0, kept = 0, low = 0, high = 0;
  std::vector<std::string> texts;
  for (const auto& [tokens, share, score] : lengths) {
    double points = 0;
    for (const result::BenchmarkTask& task : score.tasks) {
      const double weight = share * task.full;
      result::BenchmarkTask& sum =
          tasks.try_emplace(task.task, result::BenchmarkTask{task.task, 0, {0, 0}, 0}).first->second;
      sum.full += weight, sum.share_of_full += weight * task.share_of_full;
      sum.interval.low += weight * task.interval.low, sum.interval.high += weight * task.interval.high;
      if (task.simulated) sum.simulated = sum.simulated.value_or(0) + weight * *task.simulated;
      points += weight;
    }
    all += points, kept += points * score.share_of_full;
    low += points * score.interval.low, high += points * score.interval.high;
    if (score.context != out.context) out.context = 0;
    texts.push_back(fmt::format("{:.0f} % of {} tokens: {:.1f} %", 100 * share, tokens, 100 * score.share_of_full));
  }
  out.tasks.clear();
  for (auto& [name, task] : tasks) {
    task.share_of_full /= task.full, task.interval.low /= task.full, task.interval.high /= task.full;
    if (task.simulated) *task.simulated /= task.full;
    out.tasks.push_back(task);
  }
  std::ranges::stable_sort(out.tasks, {}, &result::BenchmarkTask::share_of_full);
  out.share_of_full = kept / all, out.interval = {low / all, high / all};
  out.origin = fmt::format("the lengths of the requests ({}); at the longest {}", fmt::join(texts, ", "),
                           lengths.back().score.origin);
  return out;
}

namespace {

// Returns whether later turns begin with what a policy has kept of earlier ones.
bool goes_on(const config::Run& run) {
  if (!run.traffic || (!run.traffic->sessions && run.traffic->arrivals != config::Traffic::Arrivals::kTrace))
    return false;
  const serving::Rules rules = service_rules(run);
  return rules.prefix_caching && rules.reuse == serving::Reuse::kChain;
}

}  // namespace

Scoring::Scoring(const score::ScoreModel& model, const Study& plan, const StudyOptions& options) {
  if (options.scores == Scores::kNone) return;
  static MadeOfFiles<score::ScoreTable> tables;
  if (const auto path = score::score_table_file()) {
    table_ = tables.of({*path}, [&] { return score::ScoreTable(*path); });
  }
  scores_.emplace(model, table_.get(), options.score_replays, options.threads);
  for (const Task& task : plan.tasks()) {
    const config::Run& run = task.prepared.run;
    if (!task.is_solved() || !task.refused.empty()) continue;
    if (run.score.benchmark == config::ScoreChoice::kNone || task.point.ask.index_heads > 0) continue;
    std::vector<Weighted> all = {
        {1, {run.policy, model_of(run), run.workload.prompt_tokens, run.score, run.model.cache}}};
    if (const auto& lengths = task.prepared.requests) {
      const Weighted first = all.front();
      all.assign(lengths->replayed.size(), first);
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i].share = lengths->shares[i], all[i].request.prompt_tokens = lengths->replayed[i];
    }
    const config::Workload& workload = run.workload;
    if (!workload.prompts.empty()) {
      const Weighted first = all.front();
      all.clear();
      for (const auto& prompts : workload.by_length()) {
        Weighted& at = all.emplace_back(first);
        at.share = static_cast<double>(prompts.sequences) / workload.batch, at.request.prompt_tokens = prompts.tokens;
      }
    }
    const auto is_known = [&](const Weighted& w) { return scores_->is_known(w.request); };
    if (options.scores != Scores::kAll && !run.score.requested && !std::ranges::all_of(all, is_known)) continue;
    for (const Weighted& w : all) scores_->request(w.request);
    requests_.emplace(task.index, std::move(all));
  }
  scores_->run(options.score_advance, options.cancel);
}

void Scoring::fill(const Task& task, result::Result& result) const {
  const auto requests = requests_.find(task.index);
  if (requests == requests_.end() || result.status == result::Status::kFailed) return;
  try {
    std::vector<ScoreAt> scores;
    for (const auto& [share, request] : requests->second)
      scores.push_back({request.prompt_tokens, share, scores_->score(request)});
    result.benchmark = score_of_stream(scores);
    if (goes_on(task.prepared.run))
      result.benchmark->origin +=
          "; of prompts that are read whole: turns that begin with what was kept lack what it dropped, as the "
          "benchmark "
          "SCBench shows";
  } catch (const UserError& refused) {
    result.benchmark_refused = refused.what();
  }
}

std::string score_cache_file(std::string& failure) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::filesystem::path() : std::filesystem::path(value);
  };
  std::filesystem::path folder = variable("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {
    folder = variable("HOME");
    if (!folder.is_absolute()) {
      failure = "neither XDG_CACHE_HOME nor HOME names a folder";
      return "";
    }
    folder /= ".cache";
  }
  folder /= "kvcast";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = (folder / fmt::format("replays-{}.jsonl", code_version())).string();
  const bool other = std::filesystem::exists(path, error) && !is_regular(path);
  if (!other && std::ofstream(path, std::ios::app)) return path;
  failure = fmt::format("{} cannot be written", path);
  return "";
}

}  // namespace kvcast::study
