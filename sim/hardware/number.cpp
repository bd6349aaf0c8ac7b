#include "hardware/number.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast::hardware {
namespace {

constexpr double kMostGrowth = 1;
constexpr double kLeastGrowth = 0.05;  // per doubling: a curve that is flat at its end may bend beyond it

// Relative change of a curve with a doubling of x at the end with the points `end` and `inner`: the error of holding
// the end value for another doubling if the trend continues.
double growth_at(const config::Curve& curve, std::size_t end, std::size_t inner) {
  const double doublings = std::abs(std::log2(curve.x[end] / curve.x[inner]));
  if (end == inner || !(curve.x[end] > 0 && curve.x[inner] > 0) || curve.y[end] == 0) return kGrowthPerDoubling;
  return std::max(kLeastGrowth, std::abs(1 - curve.y[inner] / curve.y[end]) / doublings);
}

Number combine(double value, const Number& a, const Number& b) {
  const double uncertainty = same_fit(a, b) ? std::max(a.uncertainty, b.uncertainty)
                                            : std::sqrt(a.uncertainty * a.uncertainty + b.uncertainty * b.uncertainty);
  return {value,
          worse(a.origin, b.origin),
          uncertainty,
          a.extrapolated || b.extrapolated,
          a.uncertainty >= b.uncertainty && a.source != nullptr ? a.source : b.source,
          a.uncertainty >= b.uncertainty ? a.over_rate : b.over_rate};
}

constexpr double kLeastFactor = 0.1;  // of the stated value, if its uncertainty exceeds it

}  // namespace

bool same_fit(const Number& a, const Number& b) {
  if (a.origin != Origin::kFitted || b.origin != Origin::kFitted || a.source == nullptr || b.source == nullptr) {
    return false;
  }
  return a.source == b.source || *a.source == *b.source;
}

Number number(const Value& value) { return {value.value, value.origin, value.uncertainty, false, &value.source}; }

Number at(const config::Curve& curve, double x) {
  Number result{0, curve.origin, curve.uncertainty, false, &curve.source};
  const double end = std::clamp(x, curve.x.front(), curve.x.back());
  if (end != x) {
    const std::size_t last = curve.x.size() - 1;
    const double growth =
        x < end ? growth_at(curve, 0, std::min<std::size_t>(1, last)) : growth_at(curve, last, last > 0 ? last - 1 : 0);
    result = outside(result, x, end, growth);
  }
  const auto above = std::upper_bound(curve.x.begin(), curve.x.end(), end);
  const auto i = above - curve.x.begin();
  if (above == curve.x.end()) {
    result.value = curve.y.back();
  } else {
    const double share = (end - curve.x[i - 1]) / (curve.x[i] - curve.x[i - 1]);
    result.value = curve.y[i - 1] + share * (curve.y[i] - curve.y[i - 1]);
  }
  return result;
}

Number outside(const Number& number, double x, double end, double growth) {
  const double more = x > 0 && end > 0 ? growth * std::abs(std::log2(x / end)) : kMostGrowth;
  Number result = number;
  result.uncertainty += std::min(kMostGrowth, more);
  result.origin = Origin::kExtrapolated;
  result.extrapolated = true;
  return result;
}

Number operator*(const Number& a, const Number& b) { return combine(a.value * b.value, a, b); }

Number operator/(const Number& a, const Number& b) {
  Number divisor = b;
  divisor.over_rate = !b.over_rate;
  return combine(a.value / b.value, a, divisor);
}

Number reached(const Value& peak, const Number& efficiency) {
  const bool assumed = worse(peak.origin, Origin::kAssumed) == peak.origin;
  return assumed ? efficiency * number(peak) : efficiency * peak.value;
}

double factor_at_uncertainty(const Number& number, double sign) {
  const double of_factor = std::max(kLeastFactor, 1 + (number.over_rate ? -sign : sign) * number.uncertainty);
  return number.over_rate ? 1 / of_factor : of_factor;
}

Number operator*(const Number& a, double factor) {
  Number scaled = a;
  scaled.value *= factor;
  return scaled;
}

}  // namespace kvcast::hardware
