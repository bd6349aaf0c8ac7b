// Intervals of predictions: what independent causes come to together.
#pragma once

#include <span>

namespace kvcast {

struct Interval {
  double low = 0, high = 0;
};

// How far from the mean of these independent draws the mean of what they are drawn from lies, with a probability of 80
// % (Student's t). At least two draws.
double off_of_mean(std::span<const double> draws);

// The same for one more draw. The draws' mean deviates from the true mean with variance s² / k and the next draw with
// s², independently of each other, so that their difference has variance s² · (1 + 1 / k).
double off_of_next(std::span<const double> draws);

// How far a value may lie from where it is, by causes that are off independently of each other: their effects add as
// squares, those that raise the value and those that lower it apart.
class Spread {
 public:
  explicit Spread(double middle) : middle_(middle) {}

  // One more cause, which may lead to any of these values instead. Those on the same side count once, by the farthest.
  void add(std::span<const double> values);

  Interval interval() const;

 private:
  double middle_ = 0;
  double below_ = 0, above_ = 0;  // sums of squares
};

// The same of a positive value that causes multiply by factors: their logarithms add as squares, so that nothing makes
// it negative, and a quotient is as uncertain as its inverse.
class FactorSpread {
 public:
  // One more cause, which may multiply the value by any of these.
  void add(std::span<const double> factors);

  Interval interval(double middle) const;

 private:
  Spread logarithms_{0};
};

}  // namespace kvcast
