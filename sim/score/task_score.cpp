#include "score/task_score.hpp"

#include <algorithm>

#include "base/file_state.hpp"
#include "config/find.hpp"

namespace kvcast::score {
namespace {

// The answer length found in the trace, its longest run of steps with targets, for a task without a description.
TaskSpec as_replayed(const replay::TargetRecall& recall) {
  TaskSpec task;
  int run = 0;
  for (const replay::StepRecall& step : recall.steps) {
    run = step.targets > 0 ? run + 1 : 0;
    task.answer = std::max(task.answer, run);
  }
  task.steps = static_cast<int>(recall.steps.size());
  return task;
}

// Each step finds at most the share `mass` of the needed tokens, as a sparse prompt read them with that share of its
// attention.
replay::TargetRecall after_sparse_prompt(replay::TargetRecall recall, double mass) {
  for (replay::StepRecall& step : recall.steps) step.kept *= mass, step.tokens *= mass;
  return recall;
}

}  // namespace

ScoreModel::ScoreModel() : link(read_recall_map(config::find_config("accuracy", "link", {}))) {}

const evidence::Predictor& ScoreModel::evidence() const {
  std::call_once(read_, [this] {
    static MadeOfFiles<evidence::Predictor> predictors;
    const auto records = config::find_file("accuracy/evidence.csv");
    if (!records) throw UserError({"configs/accuracy/evidence.csv", 0, 0}, "cannot read the evidence");
    const std::string parameters = config::find_config("accuracy", "evidence", {});
    evidence_ = predictors.of({*records, parameters}, [&] {
      return evidence::Predictor(evidence::read_records(*records), evidence::read_parameters(parameters));
    });
  });
  return *evidence_;
}

std::optional<result::TaskScore> task_score(const ScoreModel& model, const replay::ReplayResult& replay) {
  const auto prompt = replay::prompt_attention(replay.layers, replay.dense_layers);
  const replay::TargetRecall targets = after_sparse_prompt(replay.targets, prompt ? prompt->recall_mass : 1);
  double recall = 0, least = 1;
  int steps = 0;
  for (const replay::StepRecall& step : targets.steps) {
    if (step.targets == 0) continue;
    ++steps;
    recall += step.recall();
    least = std::min(least, step.recall());
  }
  // The recall of heads that ignore the targets is a ratio of two numbers near 0.
  if (steps == 0 || replay.targets.retrieving == 0) return {};
  const TaskSpec* const known = model.catalogue.task_of_trace(replay.task);
  const TaskSpec task = known != nullptr ? *known : as_replayed(targets);
  const Sample sample{replay.prompt_tokens, targets, 0}, dense{replay.prompt_tokens, replay.targets, 0};
  SharePrediction p = predict(model.link, task, {&sample, 1}, 100);
  if (prompt) p.high = std::max(p.high, predict(model.link, task, {&dense, 1}, 100).high);
  result::TaskScore out;
  out.task = replay.task, out.known = known != nullptr;
  out.share_of_full = p.share;
  // A policy that computes what full attention does keeps its score exactly.
  const bool is_full = replay.proxies.output_error_mean == 0 && !prompt;
  out.interval = is_full ? Interval{p.share, p.share} : Interval{p.low, std::min(1.0, p.high)};
  out.steps = steps;
  out.recall_mean = recall / steps, out.recall_min = least, out.other_recall = targets.other_recall();
  out.source = model.link.source;
  return out;
}

std::string why_no_score(const replay::ReplayResult& replay) {
  const auto& steps = replay.targets.steps;
  const bool any = std::ranges::any_of(steps, [](const auto& step) { return step.targets > 0; });
  return any && replay.targets.retrieving == 0
             ? "no compressed layer of the trace has a head that attends to the targets under full attention"
             : "";
}

}  // namespace kvcast::score
