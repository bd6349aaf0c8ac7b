// Searches a grid of settings for those that meet targets, and for their Pareto front, without simulating all of it.
//
// Settings that differ only in their batch form a line. Along it the times and memory grow and the score is constant,
// so simulated batches bound those between them. A setting that cannot meet a target, or that even at its best is
// dominated by a simulated setting, is never run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/experiments.hpp"
#include "plan/pareto.hpp"
#include "plan/target.hpp"

namespace kvcast::plan {

struct Candidate {
  config::Node run;
  std::vector<std::pair<std::string, std::string>> values;  // that distinguish it: dotted key, value
  std::int64_t batch = 0;
  double gpus = 1;
  std::optional<double> price_per_s;  // of all its GPUs, if prices are given
  ResultPtr result;                   // null: not simulated
  bool skipped = false;               // ruled out by its bounds

  double number(const char* path) const;  // of the result; NaN if it has none
  std::optional<double> score() const;    // share of the uncompressed model's benchmark score
  // Cost of an output token at that many of them a second.
  std::optional<double> cost(double tokens_per_s) const;
  // Output tokens per second with their prompts, score, memory and cost, larger being better. Scores that differ by
  // less than half a per cent count as equal: predictions are not more precise.
  Goodness goodness() const;
};

class GridSearch {
 public:
  GridSearch(Experiments& experiments, const std::vector<Target>& targets)
      : experiments_(experiments), targets_(targets) {}

  // Fills in the results; settings that were skipped have none.
  void run(std::vector<Candidate>& grid);

 private:
  using Line = std::vector<std::size_t>;  // settings by ascending batch

  std::vector<std::size_t> next_round(std::vector<Candidate>& grid, const std::vector<Line>& lines) const;
  void add_next(std::vector<Candidate>& grid, const Line& line, const std::vector<Goodness>& known,
                std::vector<std::size_t>& wanted) const;
  bool is_ruled_out(const Candidate& below, const Candidate* above, const Candidate& s,
                    const std::vector<Goodness>& known) const;
  std::vector<Goodness> goodness_of(const std::vector<Candidate>& grid) const;

  Experiments& experiments_;
  const std::vector<Target>& targets_;
};

}  // namespace kvcast::plan
