#include "score/benchmark.hpp"

#include <algorithm>
#include <cmath>

#include "base/hash.hpp"
#include "config/find.hpp"
#include "evidence/intervals.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::score {
namespace {

constexpr std::int64_t kStated[] = {4096, 8192, 16384, 32768, 65536, 131072};

void add_recipes(const TaskSpec& task, std::string& text) {
  for (const TaskSpec& part : task.parts) add_recipes(part, text);
  if (!task.parts.empty()) return;
  text += "\n" + trace::canonical(sample_recipe(task.recipe, {}));
}

// Weights of tasks are not included: they change the mean, but no task's share.
std::string identity_of(const config::Node& list, const std::map<std::string, TaskSpec>& tasks) {
  std::vector<std::pair<std::string, config::Node>> unweighted;
  for (const auto& [name, task] : list.entries()) unweighted.emplace_back(name, task.without({"full"}));
  std::string text = fmt::format("generator {}, {} seeds\n{}", trace::kGeneratorVersion, kBenchmarkSeeds,
                                 config::Node::map(std::move(unweighted), list.where()).canonical());
  for (const auto& [name, task] : tasks) add_recipes(task, text);
  return content_hash(text);
}

// The policy's budget, as written or its default; nothing for policies without one.
std::optional<std::int64_t> budget_of(const config::PolicyChoice& policy) {
  const policy::Descriptor& d = policy::find_policy(policy);
  const bool declared = std::ranges::any_of(d.parameters, [](const policy::Parameter& p) {
    return p.key == "budget" && std::holds_alternative<std::int64_t>(p.fallback);
  });
  if (!declared) return std::nullopt;
  return policy::ParameterValues(d, policy.parameters).integer("budget");
}

bool has_length(const TaskSpec& task) { return task.context > 0 || !task.context_shares.empty(); }

// Returns whether the policy keeps every token of a task's prompts, so that it answers as the uncompressed model does.
// Prompts of a task without a length of its own are as long as the run's.
bool keeps_all_tokens(const BenchmarkRequest& request, const TaskSpec& task, const config::Model& model) {
  const std::optional<std::int64_t> budget = budget_of(request.policy);
  if (request.cache != config::Precision::kBf16 || !budget) return false;
  const std::int64_t longest =
      has_length(task) ? prompts_of(task, model, std::nullopt).back().tokens : request.prompt_tokens;
  if (*budget < longest + task.steps) return false;
  const policy::ReplayNeeds needs =
      policy::replay_needs(policy::find_policy(request.policy), request.policy.parameters, {longest, task.steps});
  return needs.unseen.empty() && !needs.rounds;
}

std::string in_words(std::int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}K", tokens / 1024) : fmt::format("{} tokens", tokens);
}

}  // namespace

Benchmark find_benchmark(const Catalogue& catalogue, const config::ScoreChoice& choice) {
  for (const char* name : config::kBenchmarks) {
    if (bare_name(choice.benchmark) != bare_name(name)) continue;
    const config::Node all = config::load_yaml(config::find_config("accuracy", "tasks", {}));
    const config::Node* const list = all.find(name);
    if (list == nullptr) throw UserError(all.where(), fmt::format("the tasks of {} are missing", name));
    return {name, catalogue.tasks(name), identity_of(*list, catalogue.tasks(name))};
  }
  if (!config::is_path(choice.benchmark)) {
    throw UserError(choice.where, fmt::format("unknown benchmark \"{}\"", choice.benchmark),
                    {"ruler", "longbench", "niah", "scbench", "a file of tasks", config::ScoreChoice::kNone});
  }
  const config::Node list = config::load_yaml(config::find_config("accuracy", choice.benchmark, choice.where));
  std::map<std::string, TaskSpec> tasks = read_tasks(list);
  std::string identity = identity_of(list, tasks);
  return {config::stem_of(choice.benchmark), std::move(tasks), std::move(identity)};
}

std::string policy_text(const config::PolicyChoice& policy) {
  const policy::Descriptor& descriptor = policy::find_policy(policy);
  return policy.name + " " + policy::for_compressed_layers(descriptor, policy.parameters).canonical();
}

std::vector<std::int64_t> stated_contexts(const config::Model& model) {
  std::vector<std::int64_t> all = {std::min(kStated[0], model.max_context)};
  for (const std::int64_t tokens : kStated) {
    if (tokens > all.back() && tokens <= model.max_context) all.push_back(tokens);
  }
  return all;
}

std::int64_t stated_context(std::int64_t prompt_tokens, const config::Model& model) {
  const auto distance = [&](std::int64_t tokens) {
    return std::fabs(std::log(static_cast<double>(tokens) / static_cast<double>(prompt_tokens)));
  };
  const std::vector<std::int64_t> all = stated_contexts(model);
  return *std::ranges::min_element(all, {}, distance);
}

TaskReplay replay_of(const BenchmarkRequest& request, const TaskSpec& task, const config::Model& model,
                     std::int64_t stated) {
  const policy::Descriptor& descriptor = policy::find_policy(request.policy);
  TaskReplay replay;
  replay.task = task;
  replay.model = request.model;
  replay.policy = request.policy;
  replay.cache = request.cache;
  replay.policy.parameters = policy::for_compressed_layers(descriptor, request.policy.parameters);
  replay.contexts = prompts_of(task, model, has_length(task) ? std::nullopt : std::optional(stated));
  const std::optional<std::int64_t> budget = budget_of(replay.policy);
  if (has_length(task) && budget) spread_over_lengths(replay, *budget, model.max_context);
  const policy::ReplayNeeds needs =
      policy::replay_needs(descriptor, replay.policy.parameters, {replay.contexts.back().tokens, task.steps});
  if (!needs.unseen.empty()) throw UserError(fmt::format("{}: {}", descriptor.name, needs.unseen));
  replay.coupled = needs.coupled;
  replay.whole_prompt = needs.whole_prompt;
  replay.each_turn = needs.each_turn;
  replay.window = needs.window;
  check_whole_prompt(replay, descriptor.name);
  return replay;
}

result::BenchmarkScore mean_score(const std::string& benchmark, std::vector<result::BenchmarkTask> tasks,
                                  double common) {
  KVCAST_CHECK(!tasks.empty());
  result::BenchmarkScore score;
  score.benchmark = benchmark;
  double all = 0, sum = 0, below = 0, above = 0;
  for (const result::BenchmarkTask& task : tasks) {
    all += task.full;
    sum += task.full * task.share_of_full;
    below += task.full * (task.share_of_full - task.interval.low);
    above += task.full * (task.interval.high - task.share_of_full);
  }
  KVCAST_CHECK(all > 0);
  const double width = evidence::width_of_mean(common, tasks.size()), share = sum / all;
  score.share_of_full = share;
  score.interval = {std::max(0.0, share - width * below / all), share + width * above / all};
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const auto& a, const auto& b) { return a.share_of_full < b.share_of_full; });
  score.tasks = std::move(tasks);
  return score;
}

BenchmarkScores::BenchmarkScores(const ScoreModel& model, const ScoreTable* table, std::string cache, int threads)
    : model_(model), table_(table), replays_(std::move(cache), threads) {}

std::string BenchmarkScores::key_of(const BenchmarkRequest& r) const {
  return fmt::format("{}|{}|{}|{}|{}|{} {}", r.choice.benchmark, r.choice.evidence, r.model,
                     config::cache_name(r.cache), r.prompt_tokens, r.policy.name, r.policy.parameters.canonical());
}

BenchmarkScores::Requested BenchmarkScores::look_up(const BenchmarkRequest& request) const {
  Requested r;
  r.request = request;
  auto known = benchmarks_.find(request.choice.benchmark);
  if (known == benchmarks_.end()) {
    Benchmark found = find_benchmark(model_.catalogue, request.choice);
    known = benchmarks_.emplace(request.choice.benchmark, std::move(found)).first;
  }
  r.benchmark = known->second;
  r.model = config::model_named(request.model);
  r.stated = stated_context(request.prompt_tokens, r.model);
  const auto& tasks = r.benchmark.tasks;
  if (std::ranges::any_of(tasks, [](const auto& task) { return !has_length(task.second); })) {
    r.context = r.stated;
  }
  for (const auto& [name, task] : tasks) {
    if (keeps_all_tokens(request, task, r.model)) r.whole.insert(name);
  }
  return r;
}

void BenchmarkScores::request(const BenchmarkRequest& request) {
  const std::string key = key_of(request);
  if (requested_.contains(key)) return;
  Requested requested = look_up(request);
  if (auto known = known_score(requested)) {
    scores_.emplace(key, std::move(*known));
  } else {
    try {
      plan(requested);
    } catch (const UserError& refused) {
      scores_.emplace(key, refused);
    }
  }
  requested_.emplace(key, std::move(requested));
}

// Requests the replays of all tasks.
void BenchmarkScores::plan(Requested& requested) {
  for (const auto& [name, task] : requested.benchmark.tasks) {
    requested.tasks.emplace_back(name, replay_of(requested.request, task, requested.model, requested.stated));
  }
  for (const auto& [name, replay] : requested.tasks) {
    for (const PartTrace& t : traces_of(replay, kBenchmarkSeeds)) replays_.request(t.trace, replay.policy);
  }
}

bool BenchmarkScores::is_known(const BenchmarkRequest& request) const {
  return known_score(look_up(request)).has_value();
}

std::string BenchmarkScores::made_with(const Benchmark& benchmark, const config::Model& model) const {
  RecallMap link = model_.link;
  link.source.clear(), link.common_source.clear();
  link.common = 1;  // affects only means
  return content_hash(benchmark.identity + write_recall_map(link) + config::canonical(model)).substr(0, 16);
}

// Looks up a score that needs no replay: that of the uncompressed model, or one from the table.
std::optional<result::BenchmarkScore> BenchmarkScores::known_score(const Requested& r) const {
  if (r.request.cache != config::Precision::kBf16) return {};
  std::vector<result::BenchmarkTask> tasks;
  std::string origin;
  const bool whole = r.whole.size() == r.benchmark.tasks.size();
  if (policy::find_policy(r.request.policy).uncompressed() || whole) {
    for (const auto& [name, task] : r.benchmark.tasks) tasks.push_back({name, 1, {1, 1}, 100});
    origin = whole ? "the budget, which covers all tokens: the score is that of the uncompressed model"
                   : "the uncompressed model itself, of whose score all others are shares";
  } else if (table_ != nullptr) {
    const ScoreRow* const row =
        table_->find(made_with(r.benchmark, r.model), r.model.name, r.context, policy_text(r.request.policy));
    if (row == nullptr) return {};
    tasks = row->tasks;
    origin = "the table under configs/accuracy/scores, made of " + basis_of(r);
  } else {
    return {};
  }
  return simulated_score(r, std::move(tasks), std::move(origin));
}

result::BenchmarkScore BenchmarkScores::simulated_score(const Requested& r, std::vector<result::BenchmarkTask> tasks,
                                                        std::string origin) const {
  for (result::BenchmarkTask& task : tasks) {
    if (r.whole.contains(task.task)) task.share_of_full = 1, task.interval = {1, 1};
    task.full = r.benchmark.tasks.at(task.task).full_at(r.stated);
  }
  result::BenchmarkScore score = mean_score(r.benchmark.name, std::move(tasks), model_.link.common);
  score.context = r.context;
  score.origin = std::move(origin);
  return score;
}

std::string BenchmarkScores::basis_of(const Requested& r) const {
  const std::string unseen = r.request.cache == config::Precision::kBf16
                                 ? ""
                                 : fmt::format(
                                       "selections over the {} cache, without the loss from reading rounded "
                                       "values, which is not predicted; ",
                                       config::cache_name(r.request.cache));
  return fmt::format(
      "{}replays of {} synthetic traces per task for {}, {}, and the score model of configs/accuracy/link.yaml ({})",
      unseen, kBenchmarkSeeds, r.model.title,
      r.context > 0 ? "with prompts of " + in_words(r.context) : "with prompts of each task's own length",
      model_.link.source);
}

void BenchmarkScores::run(const std::function<void(std::int64_t done, std::int64_t total)>& advance,
                          const Cancel& cancel) {
  replays_.run(advance, cancel);
  for (const auto& [key, requested] : requested_) {
    if (scores_.contains(key)) continue;
    try {
      scores_.emplace(key, score_of(requested));
    } catch (const UserError& refused) {
      scores_.emplace(key, refused);
    }
  }
  for (const auto& [key, requested] : requested_) {
    const auto* const simulated = std::get_if<result::BenchmarkScore>(&scores_.at(key));
    const bool wanted =
        requested.request.choice.evidence && !policy::find_policy(requested.request.policy).uncompressed();
    if (simulated != nullptr && wanted && !estimated_.contains(key))
      estimated_.emplace(key, with_evidence(requested, *simulated));
  }
}

result::BenchmarkTask BenchmarkScores::task_score_of(const std::string& name, const TaskReplay& replay) const {
  std::vector<Sample> samples;
  for (const PartTrace& t : traces_of(replay, kBenchmarkSeeds)) {
    try {
      samples.push_back({t.trace.prompt_tokens, replays_.recall(t.trace, replay.policy), t.part, t.weight});
    } catch (const UserError& refused) {
      throw UserError(fmt::format("{}: {}", name, refused.what()));
    }
  }
  const SharePrediction p = predict(model_.link, parts_of(replay.task, replay.each_turn), samples, 100);
  return {name, std::min(1.0, p.share), {p.low, std::min(1.0, p.high)}, 100};
}

result::BenchmarkScore BenchmarkScores::score_of(const Requested& r) const {
  std::vector<result::BenchmarkTask> tasks;
  for (const auto& [name, replay] : r.tasks) tasks.push_back(task_score_of(name, replay));
  return simulated_score(r, std::move(tasks), basis_of(r));
}

result::BenchmarkScore BenchmarkScores::score(const BenchmarkRequest& request) const {
  const std::string key = key_of(request);
  const auto at = scores_.find(key);
  KVCAST_CHECK(at != scores_.end());
  if (const auto* refused = std::get_if<UserError>(&at->second)) throw UserError(*refused);
  const auto& simulated = std::get<result::BenchmarkScore>(at->second);
  if (!request.choice.evidence || policy::find_policy(request.policy).uncompressed()) return simulated;
  return estimated_.at(key);
}

result::BenchmarkScore BenchmarkScores::with_evidence(const Requested& r,
                                                      const result::BenchmarkScore& simulated) const {
  if (r.whole.size() == simulated.tasks.size()) return simulated;
  const PublishedMethod method = published_method(model_.catalogue, r.request.policy, r.benchmark.name);
  evidence::ScoredTask s;
  s.method = method.method, s.benchmark = bare_name(r.benchmark.name);
  s.model = r.model.name, s.group = r.model.group();
  if (const std::optional<std::int64_t> budget = budget_of(r.request.policy)) s.budget = static_cast<double>(*budget);
  const evidence::Predictor& evidence = model_.evidence();
  const std::set<std::string> papers = papers_with_settings(model_, method, r.request.policy, s.benchmark);
  std::vector<result::BenchmarkTask> tasks = simulated.tasks;
  double common = 0;
  for (result::BenchmarkTask& task : tasks) {
    task.simulated = task.share_of_full;
    if (r.whole.contains(task.task)) continue;
    const TaskSpec& spec = r.benchmark.tasks.at(task.task);
    double tokens = 0, weight = 0;
    for (const PromptLength& l : prompts_of(spec, r.model, has_length(spec) ? std::nullopt : std::optional(r.stated)))
      tokens += l.weight * static_cast<double>(l.tokens), weight += l.weight;
    s.task = bare_name(task.task), s.context = tokens / weight;
    s.full = task.full, s.simulated = task.full * task.share_of_full;
    s.paper = method.paper;
    s.paper = evidence.nearest_paper(s, papers);
    const evidence::Prediction p = evidence.predict(s);
    common = std::max(common, p.common);
    task.share_of_full = std::min(1.0, p.points / s.full);
    task.interval = {p.low / s.full, std::min(1.0, p.high / s.full)};
  }
  result::BenchmarkScore score = mean_score(simulated.benchmark, std::move(tasks), common);
  score.context = simulated.context;
  score.origin = evidence.origin(s, [&papers](const std::string& paper) { return papers.contains(paper); }) +
                 ". The simulation: " + simulated.origin;
  return score;
}

std::optional<ScoreRow> BenchmarkScores::row_of(const BenchmarkRequest& request) const {
  const Requested r = look_up(request);
  const auto at = scores_.find(key_of(request));
  KVCAST_CHECK(at != scores_.end());
  const auto* const score = std::get_if<result::BenchmarkScore>(&at->second);
  if (score == nullptr || policy::find_policy(r.request.policy).uncompressed()) return {};
  ScoreRow row{made_with(r.benchmark, r.model), r.model.name, policy_text(r.request.policy), r.context, score->tasks};
  std::sort(row.tasks.begin(), row.tasks.end(), [](const auto& a, const auto& b) { return a.task < b.task; });
  return row;
}

}  // namespace kvcast::score
