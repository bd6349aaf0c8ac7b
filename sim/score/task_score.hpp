// The predicted score of a replay whose trace names a task.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "evidence/predictor.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"
#include "score/catalogue.hpp"
#include "score/link.hpp"

namespace kvcast::score {

// The tasks and the link of configs/accuracy, read once. UserError where they cannot be read.
class ScoreModel {
 public:
  Catalogue catalogue;
  Link link;
  ScoreModel();
  // configs/accuracy/evidence.csv and evidence.yaml, read when they are asked for first; from any thread.
  const evidence::Predictor& evidence() const;

 private:
  mutable std::once_flag read_;
  mutable std::unique_ptr<const evidence::Predictor> evidence_;
};

// The share of the uncompressed model's score on the trace's task, with its interval. A task that configs/accuracy does
// not describe counts as one whose answers must be right token by token. Where the prompt's attention was sparse, every
// step is assumed to find no more of what it needs than the share of its mass that the prompt kept, which no
// measurement backs: the interval reaches up to what the same cache scores after a dense prompt. Nothing where the
// trace has no targets.
std::optional<result::TaskScore> task_score(const ScoreModel& model, const replay::ReplayResult& replay);

}  // namespace kvcast::score
