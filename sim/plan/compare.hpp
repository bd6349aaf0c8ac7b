// Two experiments compared by one metric: which is better, how many times, and whether the uncertainty of costs leaves
// that open.
#pragma once

#include <limits>
#include <string>

#include "base/interval.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

struct Comparison {
  // How many times as good the first one is, whichever way the metric counts: 2 is twice the throughput or half the
  // time. Infinite where only the first has the metric because the other does not fit, 0 the other way round, NaN
  // where neither does.
  double times = std::numeric_limits<double>::quiet_NaN();
  Interval interval;  // 80 %; costs that both depend on are off for both

  bool first_better() const { return times > 1; }
  bool known() const { return times == times; }
  bool told_apart() const { return interval.low > 1 || interval.high < 1; }
};

// Costs of a machine that move both cancel, and so does what a text costs both where they were replayed on the same
// ones; the layers and steps of other traces are off for each by itself. `metric` is better higher or lower. A cost
// that only one of them has, because a number of its machine was changed, moves that one alone.
Comparison compare(const result::Result& a, const result::Result& b, const result::Metric& metric);

// "1.3 (1.1 to 1.5) times".
std::string times_text(const Comparison& comparison);

}  // namespace kvcast::plan
