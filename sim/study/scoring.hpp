// Benchmark scores of a whole plan, computed once and shared by all machines and batches. The score of a service is the
// one of its requests: at each length that it replays, weighted by the share of the requests to which that is nearest.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "score/benchmark.hpp"
#include "study/study.hpp"

namespace kvcast::study {

// The score of requests of several lengths. Their number is in proportion to `share`; all scores are of one benchmark.
// Each task's share is the mean of the uncompressed model's points that are kept, and so is that of the benchmark; ends
// of intervals are those of each length together, since errors of a policy at two lengths are not independent.
struct ScoreAt {
  std::int64_t prompt_tokens = 0;
  double share = 0;
  result::BenchmarkScore score;
};
result::BenchmarkScore score_of_stream(const std::vector<ScoreAt>& lengths);

class Scoring {
 public:
  // Makes the scores that StudyOptions requests. `model` must outlive the object.
  Scoring(const score::ScoreModel& model, const Study& plan, const StudyOptions& options);

  // Writes the score of the task, or the reason why it has none, into its result. May be called from several threads.
  void fill(const Task& task, result::Result& result) const;

 private:
  std::shared_ptr<const score::ScoreTable> table_;  // null: there is none
  std::optional<score::BenchmarkScores> scores_;
  struct Weighted {
    double share = 1;
    score::BenchmarkRequest request;
  };
  std::map<std::size_t, std::vector<Weighted>> requests_;  // by index of the task; of a batch, one
};

// The file in which replays for scores are kept between runs of this version of the program, below $XDG_CACHE_HOME or
// ~/.cache; empty, with the reason in `failure`, if it cannot be written.
std::string score_cache_file(std::string& failure);

}  // namespace kvcast::study
