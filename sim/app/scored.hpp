// An experiment's record as `run` prints and `sweep` stores it.
#pragma once

#include <nlohmann/json.hpp>

#include "workload/record.hpp"

namespace kvcast::app {

// What workload::to_json writes, and the predicted score of the trace's task under `accuracy.task` (null where it has
// none), its interval and origin beside those of the other numbers.
nlohmann::json scored_record(const workload::Experiment& experiment, const workload::ExperimentInput& input);

}  // namespace kvcast::app
