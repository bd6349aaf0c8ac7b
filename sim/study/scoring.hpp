// Benchmark scores of a whole plan, computed once and shared by all machines and batches.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "score/benchmark.hpp"
#include "study/study.hpp"

namespace kvcast::study {

class Scoring {
 public:
  // Makes the scores that StudyOptions requests. `model` must outlive the object.
  Scoring(const score::ScoreModel& model, const Plan& plan, const StudyOptions& options);

  // Writes the score of the task, or the reason why it has none, into its result. May be called from several threads.
  void fill(const Task& task, result::Result& result) const;

 private:
  std::optional<score::ScoreTable> table_;
  std::optional<score::BenchmarkScores> scores_;
  std::map<std::size_t, score::BenchmarkRequest> requests_;  // by index of the task
};

// The file in which replays for scores are kept between runs of this version of the program, below $XDG_CACHE_HOME or
// ~/.cache; empty, with the reason in `failure`, if it cannot be written.
std::string score_cache_file(std::string& failure);

}  // namespace kvcast::study
