// Accuracy of a replay, and of a batch whose prompts have several lengths.
#pragma once

#include <span>

#include "replay/replay.hpp"
#include "result/result.hpp"
#include "score/task_score.hpp"

namespace kvcast::study {

// Accuracy proxies of a replay, and its predicted task score where the trace has a task.
result::Accuracy accuracy_of(const replay::ReplayResult& replayed, const score::ScoreModel& scores);

// Maps of one or several equal sequences.
struct MapShare {
  const std::vector<result::LayerMap>* maps = nullptr;
  int sequences = 1;
};

// The mean over the sequences of maps of the same layers and heads; empty if they are not. At least one.
std::vector<result::LayerMap> mean_maps(std::span<const MapShare> shares);

// The accuracy of sequences that are a part of a batch.
struct AccuracyShare {
  result::Accuracy accuracy;
  int sequences = 1;
};

// The mean over the sequences of at least one part. The tenth percentile is a mean as well: that of a typical sequence.
// A task has a score if it has one in every part.
result::Accuracy mean_accuracy(std::span<const AccuracyShare> parts);

}  // namespace kvcast::study
