// Error statistics of predictions against measurements: the same few numbers in every suite.
#pragma once

#include <cstdint>
#include <span>

namespace kvcast::metrics {

// Summary of relative errors e = predicted / measured − 1, as fractions.
struct ErrorSummary {
  std::int64_t n = 0;
  double median = 0;  // of |e|
  double p90 = 0;     // of |e|
  double max = 0;     // of |e|
  double bias = 0;    // median of e, signed
};

// All zero for an empty list.
ErrorSummary summarise_errors(std::span<const double> relative_errors);

}  // namespace kvcast::metrics
