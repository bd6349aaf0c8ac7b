// Order statistics.
#pragma once

#include <span>
#include <vector>

namespace kvcast {

// Linear interpolation between order statistics (type 7, as numpy's default). q in [0, 1]; values may be unsorted and
// must not be empty.
double quantile(std::span<const double> values, double q);
double mean(std::span<const double> values);

}  // namespace kvcast
