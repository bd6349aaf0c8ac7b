#include "plan/grid_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/findings.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

constexpr const char* kSearchedKey = "workload.batch";
constexpr double kScoreStep = 0.005;
// Step time is close to linear in the batch, and memory is linear except for the rounding of prefill batches.
constexpr double kStepShare = 0.85, kMemoryShare = 0.98;
constexpr const char* kStep = "decode.tpot_s.mean";
constexpr const char* kPrefill = "prefill.ttft_s";
constexpr const char* kRate = "request.output_tokens_per_s";
constexpr const char* kMemory = "memory.hbm_peak_bytes";

Goodness goodness_of_numbers(double tokens_per_s, std::optional<double> score, double memory,
                             std::optional<double> cost) {
  return {tokens_per_s, score ? std::round(*score / kScoreStep) : 0, -memory, cost ? -*cost : 0};
}

// Lower bound of a number that grows with the batch: its value at the smaller batch, and a share of the line to the
// larger one if that fits as well.
double least(const Candidate& below, const Candidate* above, const Candidate& s, const char* path, double share) {
  const double low = below.number(path);
  if (above == nullptr || !above->result->has_times()) return low;
  const double slope = (above->number(path) - low) / static_cast<double>(above->batch - below.batch);
  return std::max(low, share * (low + slope * static_cast<double>(s.batch - below.batch)));
}

// Returns whether larger batches miss the target, too.
bool misses_beyond(const result::Result& r, const Target& t) {
  using enum result::Basis;
  const auto value = result::value(r, *t.metric);
  if (!value) return true;
  const result::Basis basis = t.metric->basis;
  const bool step = basis == kStepTime && t.metric->unit == result::Unit::kSeconds;
  const bool latency = basis == kRequestTime && t.metric->unit == result::Unit::kSeconds;
  const bool grows = step || latency || basis == kPrefillTime || basis == kPeakMemory || basis == kDecodeMemory;
  const bool stays = basis == kReplay || basis == kBenchmark;
  return ((grows && t.at_most) || stays) && !t.holds_for(*value);
}

std::vector<std::vector<std::size_t>> lines_of(const std::vector<Candidate>& grid) {
  std::map<std::string, std::vector<std::size_t>> by_rest;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    std::string rest;
    for (const auto& [key, value] : grid[i].values) {
      if (key != kSearchedKey) rest += key + "=" + value + "\n";
    }
    by_rest[rest].push_back(i);
  }
  std::vector<std::vector<std::size_t>> lines;
  for (auto& [rest, line] : by_rest) {
    std::ranges::stable_sort(line, [&](std::size_t a, std::size_t b) { return grid[a].batch < grid[b].batch; });
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

double Candidate::number(const char* path) const {
  return result::value(*result, *result::find_metric(path)).value_or(std::nan(""));
}

std::optional<double> Candidate::score() const { return result::value(*result, *result::find_metric("score")); }

std::optional<double> Candidate::cost(double tokens_per_s) const {
  if (!price_per_s) return {};
  return *price_per_s / tokens_per_s;
}

Goodness Candidate::goodness() const {
  const double rate = number(kRate);
  return goodness_of_numbers(rate, score(), number(kMemory), cost(rate));
}

// Works in rounds: the smallest batch of every line, then the ends and the middles of gaps that bounds do not rule out.
void GridSearch::run(std::vector<Candidate>& grid) {
  const std::vector<Line> lines = lines_of(grid);
  std::vector<std::size_t> wanted;
  for (const Line& line : lines) wanted.push_back(line.front());
  while (!wanted.empty()) {
    std::vector<config::Node> runs;
    for (const std::size_t i : wanted) runs.push_back(grid[i].run);
    const std::vector<ResultPtr> results = experiments_.run(runs);
    for (std::size_t k = 0; k < wanted.size(); ++k) grid[wanted[k]].result = results[k];
    wanted = next_round(grid, lines);
  }
}

// Lines whose smallest batch is dominated by few settings come first, since their results rule out most of the rest.
std::vector<std::size_t> GridSearch::next_round(std::vector<Candidate>& grid, const std::vector<Line>& lines) const {
  const std::vector<Goodness> known = goodness_of(grid);
  std::map<std::int64_t, std::vector<std::size_t>> by_rank;
  for (const Line& line : lines) {
    const Candidate& first = grid[line.front()];
    std::int64_t rank = 0;
    if (first.result->has_times()) {
      const Goodness own = first.goodness();
      rank = std::ranges::count_if(known, [&](const Goodness& k) { return dominates(k, own); });
    }
    add_next(grid, line, known, by_rank[rank]);
  }
  for (auto& [rank, wanted] : by_rank) {
    if (!wanted.empty()) return wanted;
  }
  return {};
}

void GridSearch::add_next(std::vector<Candidate>& grid, const Line& line, const std::vector<Goodness>& known,
                          std::vector<std::size_t>& wanted) const {
  std::size_t low = 0;
  while (low + 1 < line.size()) {
    std::size_t high = low + 1;
    while (high < line.size() && !grid[line[high]].result) ++high;
    const Candidate* const above = high < line.size() ? &grid[line[high]] : nullptr;
    std::vector<std::size_t> open;
    for (std::size_t i = low + 1; i < high; ++i) {
      Candidate& s = grid[line[i]];
      s.skipped = s.skipped || is_ruled_out(grid[line[low]], above, s, known);
      if (!s.skipped) open.push_back(line[i]);
    }
    // The end of a line comes first: whether it fits decides about the settings before it.
    if (!open.empty()) wanted.push_back(high == line.size() ? open.back() : open[open.size() / 2]);
    low = high;
  }
}

// Rules out by simulated batches around it: a line that does not fit at a smaller batch does not fit here; step time
// and memory grow with the batch, and the score is the same.
bool GridSearch::is_ruled_out(const Candidate& below, const Candidate* above, const Candidate& s,
                              const std::vector<Goodness>& known) const {
  const result::Result& r = *below.result;
  if (!r.has_times()) return true;
  for (const Target& t : targets_) {
    if (misses_beyond(r, t)) return true;
  }
  const auto outputs = static_cast<double>(r.subject.decode_tokens);
  const double least_latency =
      least(below, above, s, kPrefill, kStepShare) + (outputs - 1) * least(below, above, s, kStep, kStepShare);
  const double most = static_cast<double>(s.batch) * outputs / least_latency;
  const Goodness best =
      goodness_of_numbers(most, below.score(), least(below, above, s, kMemory, kMemoryShare), s.cost(most));
  return std::ranges::any_of(known, [&](const Goodness& k) { return dominates(k, best); });
}

std::vector<Goodness> GridSearch::goodness_of(const std::vector<Candidate>& grid) const {
  std::vector<Goodness> all;
  for (const Candidate& s : grid) {
    if (s.result && !is_oracle(*s.result) && !missed(*s.result, targets_)) all.push_back(s.goodness());
  }
  return all;
}

}  // namespace kvcast::plan
