// The predicted score of a replay whose trace names a task.
#pragma once

#include <optional>

#include "replay/replay.hpp"
#include "result/result.hpp"
#include "score/catalogue.hpp"
#include "score/link.hpp"

namespace kvcast::score {

// The tasks and the link of configs/accuracy, read once. UserError where they cannot be read.
struct ScoreModel {
  Catalogue catalogue;
  Link link;
  ScoreModel();
};

// The share of the uncompressed model's score on the trace's task, with its interval. A task that configs/accuracy does
// not describe counts as one whose answers must be right token by token. Nothing where the trace has no targets.
std::optional<result::TaskScore> task_score(const ScoreModel& model, const replay::ReplayResult& replay);

}  // namespace kvcast::score
