// The settings that a sweep's findings compare: at the longest context of a group, each at its best batch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/best_batch.hpp"
#include "plan/compare.hpp"
#include "plan/findings.hpp"
#include "plan/rows.hpp"

namespace kvcast::plan {

// Requests per second, by which findings compare settings.
const result::Metric& requests_rate();
double requests_rate_of(const result::Result& r);  // 0 without one
std::string requests_rate_text(const ResultRow& row);

// The benchmark of a result's score; empty if none was requested.
std::string benchmark_of(const result::Result& r);

// One group's view: its rows at the longest context at which anything fits, with those of the searched batches, and the
// best batch of each setting that meets the floor.
struct SweepView {
  const ResultRows& here;
  config::ScoreChoice score;  // with the group's benchmark
  Texts& texts;
  const LoadResult& load;
  ResultRows longest;
  std::map<std::pair<int, std::int64_t>, std::size_t> with_times = {};  // of `longest`, by setting and batch
  std::vector<BatchLine> lines = {};                                    // of the settings whose batches were searched
  std::vector<int> line_settings = {};
  ResultRows searched = {};  // their indices are those in `searched_results`
  std::vector<ResultPtr> searched_results = {};
  ResultRows ranking = {};
  ResultPtr best = {};  // the first of the ranking; null if that is empty

  // The line of a setting; null if it was not searched.
  const BatchLine* line_of(const ResultRow& row) const;
  ResultPtr result(const ResultRow& row) const { return row.searched ? searched_results[row.index] : load(row.index); }
  const std::string& setting(const ResultRow& row) const { return texts[row.setting]; }
};

SweepView view_of(const ResultRows& here, const config::ScoreChoice& score, Texts& texts, const LoadResult& load,
                  const SearchBatches& search);

// Full KV at its best batch; nothing if it does not fit or was not swept.
std::optional<ResultRow> best_full(const SweepView& view);

// The comparison of two settings: at the best batch of each if both were searched, otherwise at equal batch only.
struct Lead {
  Comparison best, equal;        // equal: unknown if there is no batch at which both were simulated
  std::int64_t equal_batch = 0;  // the largest of these
  bool searched = false;
  const Comparison& headline() const { return searched ? best : equal; }
};
Lead lead_of(const SweepView& view, const ResultRow& a, const ResultRow& b);

// "requests per second relative to full KV: 2.1 (1.9 to 2.3) times, each at its own best batch (16 and 3); 1.2 times at
// equal batch 3"; says so if the two tie.
std::string lead_text(const ResultRow& best, const ResultRow& other, const Lead& lead, const std::string& name);

// The settings that tie with the best, and a text that names them and what tells them apart.
ResultRows ties_of(const SweepView& view);
std::string ties_text(const SweepView& view, const ResultRows& tied);

}  // namespace kvcast::plan
