// Searches for the values of a key at which the better one of two variants changes.
//
// A grid over the range brackets every change of the better one; if the ratio dips towards 1 between grid values, its
// extreme is examined as well. A false-position search on the logarithm of the ratio closes each bracket. If one
// variant does not fit in memory at one end, the value at which its memory is full is extrapolated from those at which
// it fits. If only one end of a bracket fits and nothing changes otherwise, the value from which it does not is found
// by bisection, because targets may be met just before it. So are ends of intervals without ratios.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "base/interval.hpp"
#include "plan/compare.hpp"
#include "plan/experiments.hpp"

namespace kvcast::plan {

// Relative width at which the search for a number that is not an integer ends.
inline constexpr double kClosed = 1e-3;

// Both variants at one value of the key.
struct VariantPair {
  double x = 0;
  ResultPtr of, against;  // `against` is null if targets are to be met; the ratio is then their margin
  // False if the result is taken from another value, at which the variant is known to fit as it does here.
  bool of_simulated = true, against_simulated = true;
  Comparison comparison;
  // 1: the first is better, or the targets are met; -1: the other one, or they are missed; 0: neither fits.
  int state = 0;
  bool settled = false;  // the state is the same throughout the uncertainty of costs and memory

  double log_times() const { return std::log(comparison.times); }
  bool finite() const { return std::isfinite(log_times()); }
};

struct KeyRange {
  double from = 0, to = 0;
  bool integer = false;
  double closed = kClosed;  // relative width of a bracket at which the search ends

  bool is_logarithmic() const { return from > 0 && to / from >= 4; }
  // Values that divide the range into this many steps of equal length, on a logarithmic scale if it is wide; ascending
  // and distinct, so that a short range of integers has fewer.
  std::vector<double> values(int steps) const;
  // The point at this fraction from low to high, on a logarithmic scale if they are far apart; a whole number for
  // integers.
  double between(double low, double high, double share) const;
};

struct Crossing {
  double value = 0;
  // in which the better variant is uncertain; reaches the end of the range if nothing beyond is settled
  Interval interval;
  VariantPair below, above;  // the ends of the closed bracket
};

class Crossings {
 public:
  // Samples at these values, in their order. `between`, if given, contains the ends of the bracket that one value lies
  // in.
  using Bracket = std::pair<const VariantPair*, const VariantPair*>;
  using Evaluate = std::function<std::vector<VariantPair>(const std::vector<double>& xs, const Bracket& between)>;

  Crossings(KeyRange range, Evaluate evaluate) : range_(range), evaluate_(std::move(evaluate)) {}

  std::vector<Crossing> find();
  const std::map<double, VariantPair>& samples() const { return samples_; }

 private:
  void add(const std::vector<double>& xs, const Bracket& between = {});
  void add_dips();
  void close_fits();
  Crossing close(double low, double high);
  bool is_closed(double low, double high) const;
  double proposal(const VariantPair& low, const VariantPair& high, bool middle) const;
  double where_memory_is_full(const VariantPair& low, const VariantPair& high) const;
  Interval uncertainty(const VariantPair& below, const VariantPair& above, double value);
  double edge(double settled, double open);

  KeyRange range_;
  Evaluate evaluate_;
  std::map<double, VariantPair> samples_;
};

// Returns whether there is a result and it does not fit in memory.
bool misfits(const ResultPtr& result);
// Share of its pool's capacity that a fitting experiment fills, the fuller pool of the two.
double memory_fill(const result::Result& result);

}  // namespace kvcast::plan
