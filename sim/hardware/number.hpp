// Numbers of a profile in computations: a value whose origin and uncertainty are carried through products and
// quotients.
#pragma once

#include <string>

#include "base/origin.hpp"
#include "config/hardware.hpp"

namespace kvcast::hardware {

struct Number {
  double value = 0;
  Origin origin = Origin::kExact;
  double uncertainty = 0;  // relative half-width
  bool extrapolated = false;
  const std::string* source = nullptr;  // of the least certain factor; lives in the profile
  bool over_rate = false;               // that factor divides: half the rate makes a time twice as long
};

// The factor on a number whose least certain factor is off by its uncertainty, upwards (sign 1) or downwards (-1). That
// factor is never less than a tenth of its stated value.
double factor_at_uncertainty(const Number& number, double sign);

Number number(const Value& value);
inline Number exact(double value) { return {value}; }

// The curve at x: linear between its points. Outside them it is the end value, marked as extrapolated; with every
// doubling away from the end the uncertainty grows by the relative change of the curve per doubling between the last
// two points there, at least by 0.05, at most by 1 in total. For a curve of one point it grows by 0.25 per doubling.
Number at(const config::Curve& curve, double x);

// The number used at x, outside the range for which it was established, whose nearest end is `end`: marked as
// extrapolated, with an uncertainty that is larger by `growth` for every doubling between, at most by 1.
constexpr double kGrowthPerDoubling = 0.25;  // if nothing indicates the trend of the number; a judgement
Number outside(const Number& number, double x, double end, double growth = kGrowthPerDoubling);

// Returns whether both come from one fit. A fit states the error of the times that its numbers yield together, so these
// err together and not independently.
bool same_fit(const Number& a, const Number& b);

// Errors of factors are taken as independent: relative uncertainties add in quadrature; of two factors from one fit the
// larger uncertainty counts. The origin is the worse one.
Number operator*(const Number& a, const Number& b);
Number operator/(const Number& a, const Number& b);
Number operator*(const Number& a, double factor);

// The part of a peak that is reached. An efficiency is stated relative to that same peak, which therefore cancels: only
// its own error counts. Nothing was ever measured against an assumed peak: there both errors count.
Number reached(const Value& peak, const Number& efficiency);

}  // namespace kvcast::hardware
