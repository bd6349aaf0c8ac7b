// The best batch of a setting: searched by simulation, so that a comparison of two policies does not depend on the
// batches that somebody listed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/compare.hpp"
#include "plan/experiments.hpp"
#include "plan/target.hpp"

namespace kvcast::plan {

// Batches of one run. A batch is feasible if it fits in memory and meets the targets; one whose fit is borderline only
// counts if no batch fits beyond that doubt.
//
// Doubling brackets the largest feasible batch, and bisection closes the bracket: exactly up to 64 sequences, to a
// sixty-fourth beyond. Doubling ends early where twice the batch gains less than half a per cent.
class BatchLine {
 public:
  // `objective`: a metric of which higher or lower is better. `most`: largest batch to examine.
  BatchLine(config::Node run, const result::Metric& objective, std::vector<Target> targets, std::int64_t most);

  const config::Node& run() const { return run_; }
  // The next batch to simulate; nothing once the best is known.
  std::optional<std::int64_t> next() const;
  config::Node with_batch(std::int64_t batch) const;
  void add(std::int64_t batch, ResultPtr result);

  // All simulated batches.
  const std::map<std::int64_t, ResultPtr>& results() const { return results_; }
  // The best feasible batch; null if there is none.
  ResultPtr best() const;
  // The smallest simulated batch above all that are feasible or come nearer to the targets than smaller ones: between
  // the two, nothing is known. 0: none.
  std::int64_t bracket() const;
  // Factor by which a batch between the best and the bracket may be better: at least 1.
  double slack() const;

 private:
  bool fits(const result::Result& result) const;
  bool is_feasible(const result::Result& result) const;
  bool is_promising(const result::Result& result) const;
  double merit(const result::Result& result) const;

  config::Node run_;
  const result::Metric& objective_;
  std::vector<Target> targets_;
  std::int64_t most_;
  std::map<std::int64_t, ResultPtr> results_;
};

// Compares the best batches of two lines, both of which have one. The interval includes what a batch that was not
// examined might gain: at most its share of more sequences.
Comparison compare_best(const BatchLine& a, const BatchLine& b, const result::Metric& metric);

// Simulates until the best batch of every line is known: in rounds, so that the lines share workers.
void search(std::vector<BatchLine>& lines, Experiments& experiments);

// The largest batch that searches examine for a run: the engine's limit, or 4096.
std::int64_t most_sequences(const config::Node& run);

}  // namespace kvcast::plan
