// Comparison of two experiments by one metric: the better one, the factor between them, and whether the difference
// exceeds the uncertainty of costs.
#pragma once

#include <limits>
#include <string>

#include "base/interval.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

struct Comparison {
  // Factor by which the first is better, whichever direction of the metric is better: 2 is twice the throughput or half
  // the time. Infinite if only the first has the metric because the other does not fit, 0 in the opposite case, NaN if
  // neither does.
  double times = std::numeric_limits<double>::quiet_NaN();
  Interval interval;  // 80 %; costs that both depend on err in the same way for both

  bool first_better() const { return times > 1; }
  bool known() const { return times == times; }
  bool beyond_uncertainty() const { return interval.low > 1 || interval.high < 1; }
};

// Compares by a metric of which higher or lower is better. The uncertainty of a machine's costs that affect both
// cancels, and so does the effect of a text that both were replayed on; the sampling errors of other traces are
// independent. A cost that only one of them has, because a number of its machine was changed, moves that one alone.
Comparison compare(const result::Result& a, const result::Result& b, const result::Metric& metric);

// A difference that uncertainty covers, or of less than a per cent, is none.
bool is_tie(const Comparison& comparison);

// "1.3 (1.1 to 1.5) times".
std::string times_text(const Comparison& comparison);

}  // namespace kvcast::plan
