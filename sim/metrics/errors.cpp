#include "metrics/errors.hpp"

#include <cmath>
#include <vector>

#include "base/quantile.hpp"

namespace kvcast::metrics {

ErrorSummary summarise_errors(std::span<const double> relative_errors) {
  ErrorSummary s;
  s.n = static_cast<std::int64_t>(relative_errors.size());
  if (relative_errors.empty()) return s;
  std::vector<double> sizes;
  for (const double e : relative_errors) sizes.push_back(std::abs(e));
  s.median = quantile(sizes, 0.5);
  s.p90 = quantile(sizes, 0.9);
  s.max = quantile(sizes, 1.0);
  s.bias = quantile(relative_errors, 0.5);
  return s;
}

}  // namespace kvcast::metrics
