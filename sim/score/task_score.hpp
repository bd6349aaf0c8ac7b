// The predicted score of a replay whose trace names a task.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "evidence/predictor.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"
#include "score/catalogue.hpp"
#include "score/recall_map.hpp"

namespace kvcast::score {

// The tasks and the score model of configs/accuracy, read once. Throws UserError if they cannot be read.
class ScoreModel {
 public:
  Catalogue catalogue;
  RecallMap link;
  ScoreModel();
  // configs/accuracy/evidence.csv and evidence.yaml, read on first use, and again only after they have
  // changed; may be called from any thread.
  const evidence::Predictor& evidence() const;

 private:
  mutable std::once_flag read_;
  mutable std::shared_ptr<const evidence::Predictor> evidence_;
};

// The share of the uncompressed model's score on the trace's task, with its interval. A task that configs/accuracy does
// not describe is treated as one whose answers must be right token by token. If the prompt's attention was sparse,
// every step is assumed to find no more of what it needs than the share of its mass that the prompt kept. No
// measurement supports this, so the interval extends to the score of the same cache after a dense prompt. Empty if the
// trace has no targets, or if no captured head attends to them.
std::optional<result::TaskScore> task_score(const ScoreModel& model, const replay::ReplayResult& replay);

// Returns why a trace with targets has no task score; empty if it has one or has no targets.
std::string why_no_score(const replay::ReplayResult& replay);

}  // namespace kvcast::score
