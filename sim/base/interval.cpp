#include "base/interval.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace kvcast {

double half_width_of_mean(std::span<const double> draws) {
  KVCAST_CHECK(draws.size() >= 2);
  const double n = static_cast<double>(draws.size());
  const double mean = std::accumulate(draws.begin(), draws.end(), 0.0) / n;
  double squares = 0;
  for (const double d : draws) squares += (d - mean) * (d - mean);
  constexpr double kBelow = 0.9;  // a tenth of the probability lies on either side
  return boost::math::quantile(boost::math::students_t(n - 1), kBelow) * std::sqrt(squares / (n - 1) / n);
}

double half_width_of_next(std::span<const double> draws) {
  return half_width_of_mean(draws) * std::sqrt(static_cast<double>(draws.size()) + 1);
}

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
  const Interval logarithms = logarithms_.interval();
  return {middle * std::exp(logarithms.low), middle * std::exp(logarithms.high)};
}

}  // namespace kvcast
