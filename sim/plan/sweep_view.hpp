// The settings that a sweep's findings compare: at the longest context of a group, each at its best batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/best_batch.hpp"
#include "plan/compare.hpp"
#include "plan/findings.hpp"

namespace kvcast::plan {

using ResultRows = std::vector<const result::Result*>;

// Requests per second, by which findings compare settings.
const result::Metric& requests_rate();
double requests_rate_of(const result::Result& r);
std::string requests_rate_text(const result::Result& r);

// The benchmark of a result's score; empty if none was requested.
std::string benchmark_of(const result::Result& r);

// One group's view: its rows at the longest context at which anything fits, with those of the searched batches, and the
// best batch of each setting that meets the floor. Refers to the rows and to itself, and so is not copied.
struct SweepView {
  const ResultRows& here;
  config::ScoreChoice score;  // with the group's benchmark
  ResultRows longest;
  std::vector<BatchLine> lines;  // of the settings whose batches were searched
  std::vector<result::Result> searched = {};
  ResultRows ranking = {};

  SweepView(const ResultRows& rows, config::ScoreChoice choice) : here(rows), score(std::move(choice)) {}
  SweepView(SweepView&&) = default;
  SweepView(const SweepView&) = delete;

  const result::Result& best() const { return *ranking.front(); }
  // The line of a setting; null if it was not searched.
  const BatchLine* line_of(const result::Result& r) const;
};

SweepView view_of(const ResultRows& here, const config::ScoreChoice& score, const SearchBatches& search);

// Full KV at its best batch; null if it does not fit or was not swept.
const result::Result* best_full(const SweepView& view);

// The comparison of two settings: at the best batch of each if both were searched, otherwise at equal batch only.
struct Lead {
  Comparison best, equal;        // equal: unknown if there is no batch at which both were simulated
  std::int64_t equal_batch = 0;  // the largest of these
  bool searched = false;
  const Comparison& headline() const { return searched ? best : equal; }
};
Lead lead_of(const SweepView& view, const result::Result& a, const result::Result& b);

// "requests per second relative to full KV: 2.1 (1.9 to 2.3) times, each at its own best batch (16 and 3); 1.2 times at
// equal batch 3"; says so if the two tie.
std::string lead_text(const result::Result& best, const result::Result& other, const Lead& lead,
                      const std::string& name);

// The settings that tie with the best, and a text that names them and what tells them apart.
ResultRows ties_of(const SweepView& view);
std::string ties_text(const result::Result& best, ResultRows tied);

}  // namespace kvcast::plan
