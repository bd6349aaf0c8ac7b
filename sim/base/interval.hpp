// Prediction intervals, from the joint effect of independent causes.
#pragma once

#include <span>

namespace kvcast {

struct Interval {
  double low = 0, high = 0;
};

// 80 % half-width of the confidence interval of the mean of independent draws (Student's t). Needs at least two draws.
double half_width_of_mean(std::span<const double> draws);

// 80 % half-width of the prediction interval of one further draw. The draws' mean deviates from the true mean with
// variance s² / k and the next draw with s², independently of each other, so that their difference has variance s² · (1
// + 1 / k).
double half_width_of_next(std::span<const double> draws);

// Sums the effects of independent causes on a value: squares add, separately for causes that raise the value and for
// causes that lower it.
class Spread {
 public:
  explicit Spread(double middle) : middle_(middle) {}

  // Adds one cause, under which the value may be any of these instead. Of the values on one side only the farthest
  // counts.
  void add(std::span<const double> values);

  Interval interval() const;

 private:
  double middle_ = 0;
  double below_ = 0, above_ = 0;  // sums of squares
};

// The same for a positive value that causes multiply by factors: squares of logarithms add, so that the value stays
// positive and a quotient is as uncertain as its inverse.
class FactorSpread {
 public:
  // Adds one cause, which may multiply the value by any of these.
  void add(std::span<const double> factors);

  Interval interval(double middle) const;

 private:
  Spread logarithms_{0};
};

}  // namespace kvcast
