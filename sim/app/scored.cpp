#include "app/scored.hpp"

#include "accuracy/task_score.hpp"

namespace kvcast::app {

using nlohmann::json;

json scored_record(const workload::Experiment& experiment, const workload::ExperimentInput& input) {
  json record = workload::to_json(experiment, input);
  json task = accuracy::task_score(*input.replay);
  if (task.is_object()) {
    record["intervals"]["accuracy.task.share_of_full"] = task["interval"];
    record["origin"]["accuracy.task"] = task["origin"];
  }
  record["accuracy"]["task"] = std::move(task);
  return record;
}

}  // namespace kvcast::app
