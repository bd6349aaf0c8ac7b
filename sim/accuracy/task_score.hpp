// The predicted score of a replay whose trace names a task.
#pragma once

#include <nlohmann/json.hpp>

#include "replay/replay.hpp"

namespace kvcast::accuracy {

// {task, known, share_of_full, interval, steps, recall_mean, recall_min, other_recall, origin, rests_on}: the share of
// the uncompressed model's score on the task, with its interval. A task that configs/accuracy does not know counts as
// one whose answers must be right token by token (known: false). Null where the trace has no targets. UserError where
// configs/accuracy cannot be read.
nlohmann::json task_score(const replay::ReplayResult& replay);

}  // namespace kvcast::accuracy
