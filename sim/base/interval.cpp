#include "base/interval.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvcast {

void Spread::add(std::span<const double> values) {
  double low = 0, high = 0;
  for (const double v : values) low = std::min(low, v - middle_), high = std::max(high, v - middle_);
  below_ += low * low, above_ += high * high;
}

Interval Spread::interval() const { return {middle_ - std::sqrt(below_), middle_ + std::sqrt(above_)}; }

void FactorSpread::add(std::span<const double> factors) {
  std::vector<double> logarithms;
  for (const double f : factors) logarithms.push_back(std::log(f));
  logarithms_.add(logarithms);
}

Interval FactorSpread::interval(double middle) const {
  const Interval off = logarithms_.interval();
  return {middle * std::exp(off.low), middle * std::exp(off.high)};
}

}  // namespace kvcast
