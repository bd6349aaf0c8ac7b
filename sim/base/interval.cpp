#include "base/interval.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast {

void Spread::add(std::span<const double> values) {
  double low = 0, high = 0;
  for (const double v : values) low = std::min(low, v - middle_), high = std::max(high, v - middle_);
  below_ += low * low, above_ += high * high;
}

Interval Spread::interval() const { return {middle_ - std::sqrt(below_), middle_ + std::sqrt(above_)}; }

}  // namespace kvcast
