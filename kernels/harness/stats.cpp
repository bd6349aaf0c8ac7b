#include "harness/stats.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast::kernels {

namespace {

double quantile_of_sorted(const std::vector<double>& sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  return quantile_of_sorted(samples, q);
}

Summary summarize(const std::vector<double>& samples) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  Running running;
  for (const double s : samples) running.add(s);
  return {sorted.front(),
          quantile_of_sorted(sorted, 0.25),
          quantile_of_sorted(sorted, 0.5),
          quantile_of_sorted(sorted, 0.75),
          sorted.back(),
          running.mean(),
          running.relative_stdev()};
}

double Running::stdev() const { return n_ > 1 ? std::sqrt(squares_ / static_cast<double>(n_ - 1)) : 0; }

}  // namespace kvcast::kernels
