#include "accuracy/task_score.hpp"

#include <algorithm>

#include "accuracy/catalogue.hpp"
#include "accuracy/link.hpp"
#include "config/find.hpp"

namespace kvcast::accuracy {
namespace {

// Tokens of the answers as they stand in the trace, for a task that nobody described: its longest run of steps.
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

}  // namespace

nlohmann::json task_score(const replay::ReplayResult& replay) {
  double recall = 0, least = 1;
  int steps = 0;
  for (const replay::StepRecall& step : replay.targets.steps) {
    if (step.targets == 0) continue;
    ++steps;
    recall += step.recall();
    least = std::min(least, step.recall());
  }
  if (steps == 0) return nullptr;
  const Catalogue catalogue;
  const Link link = read_link(config::find_config("accuracy", "link", {}));
  const TaskSpec* const known = catalogue.task_of_trace(replay.task);
  const TaskSpec task = known != nullptr ? *known : as_replayed(replay.targets);
  const Sample sample{replay.prompt_tokens, replay.targets, 0};
  const Prediction p = predict(link, task, {&sample, 1}, 100);
  return {{"task", replay.task},      {"known", known != nullptr},
          {"share_of_full", p.share}, {"interval", {p.low, std::min(1.0, p.high)}},
          {"steps", steps},           {"recall_mean", recall / steps},
          {"recall_min", least},      {"other_recall", replay.targets.other_recall()},
          {"origin", "fitted"},       {"rests_on", link.source}};
}

}  // namespace kvcast::accuracy
