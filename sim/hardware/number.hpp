// Numbers of a profile in use: a value with what it rests on, carried through products and quotients.
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
  bool over_rate = false;               // that factor divides: a rate that is half as high makes a time twice as long
};

// What a number is multiplied by where its least certain factor is off by its uncertainty: upwards (sign 1) or
// downwards (-1). A factor is never less than a tenth of what is stated.
double factor_when_off(const Number& number, double sign);

Number number(const Value& value);
inline Number exact(double value) { return {value}; }

// The curve at x: linear between its points. Outside them the end value, marked extrapolated; with every doubling away
// from the end the uncertainty grows by as much as the value still changes with a doubling between the last two points
// there, by 0.05 at least, in all at most by 1. By 0.25 where a curve is one point.
Number at(const config::Curve& curve, double x);

// The number used at x, outside of where it was established, whose nearest end is `end`: marked extrapolated, its
// uncertainty larger by `growth` for every doubling between, at most by 1.
constexpr double kGrowthPerDoubling = 0.25;  // where nothing tells how the number goes on; a judgement
Number outside(const Number& number, double x, double end, double growth = kGrowthPerDoubling);

// Whether both come from one fit. A fit states how far the times are off that its numbers come to together, so that
// these are off together, and not by chance in different directions.
bool same_fit(const Number& a, const Number& b);

// Errors of factors are taken as independent: relative uncertainties add as squares; of one fit the larger one holds.
// The origin is the worse one.
Number operator*(const Number& a, const Number& b);
Number operator/(const Number& a, const Number& b);
Number operator*(const Number& a, double factor);

// The part of a peak that is reached. An efficiency is stated against that very peak, which therefore cancels: its own
// error is all there is. Against a peak that is assumed nothing was ever stated: there both errors count.
Number reached(const Value& peak, const Number& efficiency);

}  // namespace kvcast::hardware
