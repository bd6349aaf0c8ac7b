// The share of the tasks' errors that remains in a mean, by hand.
#include <catch2/catch.hpp>

#include "accuracy/fit.hpp"

namespace kvcast::tests {

using namespace accuracy;

namespace {

// A mean over four tasks, predicted at 50 points from 40 to 70.
Average average(double published) {
  Average a;
  a.row.value = published;
  a.parts.resize(4);
  a.predicted = 50, a.low = 40, a.high = 70;
  return a;
}

TEST_CASE("the common share of errors is the smallest one that covers 80 % of the averages") {
  // 14 points above: (14 / 20)² = 0.49 = ρ + (1 − ρ) / 4, so ρ = 0.32. 7 below: the same share of the 10 points there.
  CHECK(*fit_common({average(64)}) == Approx(0.32));
  CHECK(*fit_common({average(43)}) == Approx(0.32));
  // Independent errors halve the width of four tasks: 5 below needs no common share; beyond the interval no share
  // suffices.
  CHECK(*fit_common({average(45)}) == Approx(0).margin(1e-12));
  CHECK(*fit_common({average(20)}) == 1);
  // The fifth of six averages (80 % of the way from the first to the last) decides.
  CHECK(*fit_common({average(50), average(50), average(50), average(50), average(64), average(20)}) == Approx(0.32));
}

TEST_CASE("averages without a prediction, or of one task, do not count") {
  Average refused = average(20), single = average(20);
  refused.refused = "why", single.parts.resize(1);
  CHECK_FALSE(fit_common({refused, single}));
  CHECK(*fit_common({refused, single, average(64)}) == Approx(0.32));
}

}  // namespace
}  // namespace kvcast::tests
