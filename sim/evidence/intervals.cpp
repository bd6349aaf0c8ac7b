#include "evidence/intervals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "base/quantile.hpp"
#include "evidence/estimator.hpp"

namespace kvcast::evidence {

namespace {

std::string table_of(const ScoreRecord& r) {
  return fmt::format("{}|{}|{}|{}", r.paper, r.table, r.model, r.benchmark);
}

std::string share_of_prompt(const ScoreRecord& r) { return fmt::format("{:.2f}", r.budget_share()); }

std::string tokens(const ScoreRecord& r) { return fmt::format("{:.0f}", r.budget); }

}  // namespace

Comparisons::Comparisons(const std::vector<ScoreRecord>& records) {
  struct Stated {
    std::set<std::string> shares, tokens;  // with the method
  };
  std::map<std::string, Stated> tables;
  for (const ScoreRecord& r : records) {
    Stated& stated = tables[table_of(r)];
    stated.shares.insert(r.method + share_of_prompt(r)), stated.tokens.insert(r.method + tokens(r));
  }
  for (const auto& [table, stated] : tables) {
    if (stated.shares.size() < stated.tokens.size()) in_shares_.insert(table);
  }
}

std::string Comparisons::of(const ScoreRecord& r) const {
  const std::string table = table_of(r);
  const std::string length = family_of(r.benchmark) == Family::kRuler ? fmt::format("{:.0f}", r.context) : "";
  return fmt::format("{}|{}|{}", table, length, in_shares_.contains(table) ? share_of_prompt(r) + " of it" : tokens(r));
}

namespace {

constexpr double kInside = .8;  // share of the published scores that intervals contain
// Correlation of two rows of a table in being outside their intervals: the median over benchmarks and novelties of the
// intraclass correlation. Between .03 and .3, coverage changes by a point.
constexpr double kWithinTable = .1;

// Error of the estimate in units of its standard deviation.
double standard_error_of(const LeftOutScore& l) {
  const double full = l.record->full;
  return std::abs(to_angle(l.record->published, full) - to_angle(l.estimate.mean, full)) / l.estimate.deviation;
}

ScoreRange range_of(const LeftOutScore& l) { return evidence::range_of(l.estimate.mean, l.record->full); }

// Rows that were left out together and stand in one table.
std::string cluster_of(const LeftOutScore& l) {
  const ScoreRecord& r = *l.record;
  return fmt::format("{}|{}|{}|{}|{}", r.paper, r.table, r.model, r.benchmark, l.group);
}

}  // namespace

ScoreRange range_of(double points, double full) {
  return points > .1 * full && points < .9 * full ? ScoreRange::kBetween : ScoreRange::kEnds;
}

double spread_of(const std::vector<const LeftOutScore*>& left_out) {
  std::map<std::string, double> rows;  // by table
  for (const LeftOutScore* l : left_out) ++rows[cluster_of(*l)];
  std::vector<std::pair<double, double>> errors;  // with their weights
  double total = 1;                               // of the table whose errors are as the estimator states
  for (const LeftOutScore* l : left_out) {
    const double weight = kWithinTable / (1 + (rows.at(cluster_of(*l)) - 1) * kWithinTable);
    errors.emplace_back(standard_error_of(*l), weight), total += weight;
  }
  const auto share_within = [&](double spread) {
    double within = std::erf(spread / std::numbers::sqrt2);
    for (const auto& [error, weight] : errors) within += error <= spread ? weight : 0;
    return within / total;
  };
  double low = 0, high = 100;
  while (high - low > 1e-6) {
    const double middle = (low + high) / 2;
    (share_within(middle) >= kInside ? high : low) = middle;
  }
  return high;
}

std::vector<HeldOut> held_out(const std::vector<LeftOutScore>& left_out) {
  std::map<std::pair<std::string, ScoreRange>, double> spreads;  // by group
  std::vector<HeldOut> all;
  for (const LeftOutScore& l : left_out) {
    const ScoreRange range = range_of(l);
    const auto [at, is_new] = spreads.try_emplace({l.group, range});
    if (is_new) {
      std::vector<const LeftOutScore*> others;
      for (const LeftOutScore& other : left_out) {
        if (other.group != l.group && range_of(other) == range) others.push_back(&other);
      }
      at->second = spread_of(others);
    }
    const double full = l.record->full, angle = to_angle(l.estimate.mean, full);
    const double half = at->second * l.estimate.deviation;
    all.push_back({&l, std::min(l.estimate.mean, to_points(angle - half, full)),
                   std::max(l.estimate.mean, to_points(angle + half, full))});
  }
  return all;
}

std::vector<HeldOutMean> held_out_means(const std::vector<HeldOut>& rows, const Comparisons& comparisons) {
  constexpr std::size_t kLeast = 4;
  std::map<std::string, std::vector<const HeldOut*>> means;
  for (const HeldOut& h : rows)
    means[fmt::format("{}|{}|{}", comparisons.of(*h.row->record), h.row->record->method, h.row->group)].push_back(&h);
  std::vector<HeldOutMean> all;
  for (const auto& [name, tasks] : means) {
    if (tasks.size() < kLeast) continue;
    const auto n = static_cast<double>(tasks.size());
    double above = 0, below = 0, error = 0;
    for (const HeldOut* h : tasks) {
      const double mean = h->row->estimate.mean;
      error += (h->row->record->published - mean) / n, below += (mean - h->low) / n, above += (h->high - mean) / n;
    }
    all.push_back({tasks.front()->row->group, tasks.size(), std::abs(error), error > 0 ? above : below});
  }
  return all;
}

double width_of_mean(double common, std::size_t n) { return std::sqrt(common + (1 - common) / static_cast<double>(n)); }

double common_needed(double error, double half_width, std::size_t n) {
  if (error == 0) return 0;
  if (half_width <= 0) return 1;
  const double ratio = error * error / (half_width * half_width), alone = 1 / static_cast<double>(n);
  return std::clamp((ratio - alone) / (1 - alone), 0.0, 1.0);
}

double common_of(const std::vector<HeldOutMean>& means, const std::string& without_group) {
  std::vector<double> needed;
  for (const HeldOutMean& m : means) {
    if (without_group.empty() || m.group != without_group)
      needed.push_back(common_needed(m.error, m.half_width, m.tasks));
  }
  return needed.empty() ? 1 : quantile(needed, kInside);
}

double share_of_means_within(const std::vector<HeldOutMean>& means) {
  double within = 0;
  for (const HeldOutMean& m : means)
    within += m.error <= m.half_width * width_of_mean(common_of(means, m.group), m.tasks) ? 1 : 0;
  return means.empty() ? 0 : within / static_cast<double>(means.size());
}

}  // namespace kvcast::evidence
