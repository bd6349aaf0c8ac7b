// Rows of a table of results, and the text of a finding about one of them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/findings.hpp"
#include "plan/unchanged.hpp"
#include "support/small_result.hpp"

namespace kvcast::tests {

// Requests of two output tokens whose prompts take no time: one decode step each, so that requests per second are
// tokens per second. A result of 0 does not fit; a score below 0 has none.
inline result::Result row(std::int64_t context, std::int64_t batch, const std::string& policy, double rate,
                          double score) {
  result::Result r = small_result();
  r.subject.model = "model", r.subject.hardware = "card", r.subject.trace = "text";
  r.subject.policy = policy, r.subject.settings.clear(), r.subject.swept.clear();
  if (policy == "full") r.subject.category = policy::Category::kNone;
  r.subject.prompt_tokens = context, r.subject.decode_tokens = 2, r.subject.batch = batch;
  r.experiment.ttft_s = r.experiment.first_ttft_s = 0;
  r.experiment.tokens_per_s = rate;
  r.experiment.tpot_mean_s = rate > 0 ? static_cast<double>(batch) / rate : 0;
  if (rate == 0) r.status = result::Status::kOom, r.experiment.oom.emplace().pool = "hbm";
  if (score >= 0) {
    auto& b = r.benchmark.emplace();
    b.benchmark = "ruler", b.share_of_full = score, b.interval = {score - 0.02, std::min(1.0, score + 0.02)};
  } else {
    r.benchmark_refused = "no such heads";
  }
  return r;
}

// Results as findings see them: as rows and, where one is described, whole.
struct Table {
  explicit Table(const std::vector<result::Result>& all) : results(all) {
    for (const result::Result& r : results) {
      rows.push_back(plan::row_of(r, rows.size(), texts));
      points.push_back(plan::swept_point(r, texts));
    }
  }
  std::shared_ptr<const result::Result> load(std::size_t index) {
    ++loaded;
    return std::make_shared<const result::Result>(results.at(index));
  }

  const std::vector<result::Result>& results;
  plan::Texts texts;
  plan::ResultRows rows;
  std::vector<plan::SweptPoint> points;
  int loaded = 0;
};

inline std::vector<plan::Finding> findings_of(const std::vector<result::Result>& results,
                                              const config::ScoreChoice& score,
                                              const plan::SearchBatches& search = {}) {
  Table table(results);
  return plan::findings(
      table.rows, table.texts, [&](std::size_t i) { return table.load(i); }, score, search);
}

inline std::vector<plan::Unchanged> unchanged_of(const std::vector<result::Result>& results) {
  Table table(results);
  std::vector<const plan::SweptPoint*> points;
  for (const plan::SweptPoint& point : table.points) points.push_back(&point);
  return plan::unchanged_by(points, table.texts, [&](std::size_t i) { return table.load(i); });
}

inline std::string served(const std::string& setting, double rate, const std::string& context, int batch) {
  return fmt::format("{} at {} tokens, batch {}: {:.3g} requests/s, TTFT 0 s, latency {}", setting, context, batch,
                     rate, format_seconds(batch / rate));
}

}  // namespace kvcast::tests
