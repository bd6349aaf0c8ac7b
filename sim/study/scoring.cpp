#include "study/scoring.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "config/section.hpp"

namespace kvcast::study {
namespace {

// The name of the model's file if it is found by it, otherwise the path as the run gives it.
std::string model_of(const config::Run& run) {
  const auto named = config::find_config_if_any("models", run.model.name, {});
  config::Model as_read = run.model;  // except for the changes of a deployment
  if (named) {
    const config::Model file = config::read_model(*named);
    as_read.weights = file.weights, as_read.expert_weights = file.expert_weights, as_read.cache = file.cache;
  }
  const bool same = named && config::canonical(config::read_model(*named)) == config::canonical(as_read);
  return same ? run.model.name : config::read_text(*run.source.find("model"), "model");
}

}  // namespace

Scoring::Scoring(const score::ScoreModel& model, const Plan& plan, const StudyOptions& options) {
  if (options.scores == Scores::kNone) return;
  if (const auto path = score::score_table_file()) table_.emplace(*path);
  scores_.emplace(model, table_ ? &*table_ : nullptr, options.score_replays, options.threads);
  for (const Task& task : plan.tasks()) {
    const config::Run& run = task.prepared.run;
    if (!task.is_solved() || !task.refused.empty()) continue;
    if (run.score.benchmark == config::ScoreChoice::kNone || task.point.ask.index_heads > 0) continue;
    score::BenchmarkRequest request{run.policy, model_of(run), run.workload.prompt_tokens, run.score, run.model.cache};
    const bool wanted = options.scores == Scores::kAll || run.score.requested || scores_->is_known(request);
    if (!wanted) continue;
    scores_->request(request);
    requests_.emplace(task.index, std::move(request));
  }
  scores_->run(options.score_advance, options.cancel);
}

void Scoring::fill(const Task& task, result::Result& result) const {
  const auto request = requests_.find(task.index);
  if (request == requests_.end() || result.status == result::Status::kFailed) return;
  try {
    result.benchmark = scores_->score(request->second);
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
