#include "plan/best_batch.hpp"

#include <algorithm>
#include <limits>

#include "plan/key.hpp"

namespace kvcast::plan {
namespace {

constexpr std::int64_t kMost = 4096;
constexpr std::int64_t kExact = 64;  // up to here the bracket is closed to one sequence
constexpr std::int64_t kBracketParts = 64;
constexpr double kLeastGain = 1.005;  // of twice the batch

}  // namespace

BatchLine::BatchLine(config::Node run, const result::Metric& objective, std::vector<Target> targets, std::int64_t most)
    : run_(std::move(run)), objective_(objective), targets_(std::move(targets)), most_(most) {}

config::Node BatchLine::with_batch(std::int64_t batch) const {
  return run_.with("workload.batch", config::Node::scalar(std::to_string(batch), {}));
}

void BatchLine::add(std::int64_t batch, ResultPtr result) { results_[batch] = std::move(result); }

bool BatchLine::fits(const result::Result& result) const {
  if (!result.has_times()) return false;
  const bool any_certain =
      std::ranges::any_of(results_, [](const auto& r) { return r.second->has_times() && !r.second->borderline; });
  return !any_certain || !result.borderline;
}

bool BatchLine::is_feasible(const result::Result& result) const { return fits(result) && !missed(result, targets_); }

// Rates grow with the batch, and costs fall: such targets may be met by larger batches.
bool BatchLine::is_promising(const result::Result& result) const {
  return fits(result) && std::ranges::all_of(targets_, [&](const Target& t) {
           if (!missed(result, {t})) return true;
           const bool rate =
               t.metric->unit == result::Unit::kTokensPerSecond || t.metric->unit == result::Unit::kRequestsPerSecond;
           return t.at_most ? t.metric->unit == result::Unit::kMoney : rate;
         });
}

double BatchLine::merit(const result::Result& result) const {
  const double value = result::value(result, objective_).value_or(-std::numeric_limits<double>::infinity());
  return objective_.better == result::Better::kLower ? -value : value;
}

std::int64_t BatchLine::bracket() const {
  std::int64_t infeasible = 0;
  for (auto at = results_.rbegin(); at != results_.rend() && !is_promising(*at->second); ++at) infeasible = at->first;
  return infeasible;
}

ResultPtr BatchLine::best() const {
  ResultPtr best;
  for (const auto& [batch, result] : results_) {
    if (is_feasible(*result) && (!best || merit(*result) > merit(*best))) best = result;
  }
  return best;
}

double BatchLine::slack() const {
  const ResultPtr found = best();
  const std::int64_t bad = bracket();
  if (!found || bad <= found->subject.batch + 1) return 1;
  return static_cast<double>(bad - 1) / static_cast<double>(found->subject.batch);
}

Comparison compare_best(const BatchLine& a, const BatchLine& b, const result::Metric& metric) {
  Comparison c = compare(*a.best(), *b.best(), metric);
  c.interval.high *= a.slack(), c.interval.low /= b.slack();
  return c;
}

std::optional<std::int64_t> BatchLine::next() const {
  if (results_.empty()) return 1;
  const std::int64_t bad = bracket();
  std::int64_t good = 0;
  for (const auto& [batch, result] : results_) {
    if (is_promising(*result)) good = batch;
  }
  if (bad > 0) {
    const std::int64_t width = bad <= kExact ? 1 : std::max<std::int64_t>(1, bad / kBracketParts);
    if (good == 0 || bad - good <= width) return {};
    return good + (bad - good) / 2;
  }
  if (good >= most_) return {};
  const auto half = results_.find(good / 2);
  if (half != results_.end() && good > 1 && is_feasible(*half->second)) {
    const double gain = *result::value(*results_.at(good), objective_) / *result::value(*half->second, objective_);
    if ((objective_.better == result::Better::kLower ? 1 / gain : gain) < kLeastGain) return {};
  }
  return std::min(most_, 2 * good);
}

void search(std::vector<BatchLine>& lines, Experiments& experiments) {
  while (true) {
    std::vector<config::Node> runs;
    std::vector<std::pair<BatchLine*, std::int64_t>> wanted;
    for (BatchLine& line : lines) {
      const auto batch = line.next();
      if (!batch) continue;
      wanted.emplace_back(&line, *batch);
      runs.push_back(line.with_batch(*batch));
    }
    if (wanted.empty()) return;
    const std::vector<ResultPtr> results = experiments.run(runs);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i].first->add(wanted[i].second, results[i]);
  }
}

std::int64_t most_sequences(const config::Node& run) { return engine_batch(run).value_or(static_cast<int>(kMost)); }

}  // namespace kvcast::plan
