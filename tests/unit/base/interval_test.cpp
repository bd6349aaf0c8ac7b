#include "base/interval.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace kvcast::tests {

TEST_CASE("independent causes add in quadrature, increases separately from decreases") {
  Spread spread(10);
  spread.add(std::array{7.0, 12.0});                  // 3 less, 2 more
  spread.add(std::array{6.0, 10.0});                  // 4 less, nothing more
  spread.add(std::array{11.0, 11.5});                 // both more: the farther one, 1.5
  CHECK(spread.interval().low == Approx(10 - 5));     // sqrt(9 + 16)
  CHECK(spread.interval().high == Approx(10 + 2.5));  // sqrt(4 + 2.25)
}

TEST_CASE("the interval without causes is a point") {
  Spread spread(-3);
  CHECK(spread.interval().low == -3);
  spread.add(std::vector<double>{});
  CHECK(spread.interval().high == -3);
}

TEST_CASE("factors add by their logarithms, and the result is never negative") {
  FactorSpread spread;
  spread.add(std::array{0.5, 8.0});   // ln 2 below, 3 ln 2 above
  spread.add(std::array{0.5, 16.0});  // ln 2 below, 4 ln 2 above
  CHECK(spread.interval(3).low == Approx(3 * std::pow(2, -std::sqrt(2))));
  CHECK(spread.interval(3).high == Approx(3 * 32));  // sqrt(9 + 16) = 5 doublings
  for (int i = 0; i < 20; ++i) spread.add(std::array{0.1});
  CHECK(spread.interval(3).low > 0);
}

TEST_CASE("the uncertainty of the mean of a few draws follows Student's distribution") {
  // Two draws 2 apart: their standard deviation is sqrt(2), that of the mean 1. With one degree of freedom, Student's
  // is Cauchy's distribution, whose 90th percentile is tan(0.4 pi).
  CHECK(half_width_of_mean(std::array{4.0, 6.0}) == Approx(std::tan(0.4 * 3.14159265358979)));
  // Three, deviations -1, 0, 1: the variance is 2 / 2, of the mean 1/3; tables give 1.886 for two degrees of freedom.
  CHECK(half_width_of_mean(std::array{9.0, 10.0, 11.0}) == Approx(1.8856 / std::sqrt(3)).epsilon(1e-4));
  CHECK(half_width_of_mean(std::array{5.0, 5.0, 5.0, 5.0}) == 0);
}

}  // namespace kvcast::tests
