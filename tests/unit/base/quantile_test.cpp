#include <catch2/catch.hpp>

#include <vector>

#include "base/quantile.hpp"

namespace kvcast::tests {

TEST_CASE("quantiles interpolate between order statistics", "[quantile]") {
  const std::vector<double> values = {4, 1, 3, 2};
  CHECK(quantile(values, 0) == 1);
  CHECK(quantile(values, 1) == 4);
  CHECK(quantile(values, 0.5) == 2.5);                 // rank 0.5 · 3 = 1.5: halfway from 2 to 3
  CHECK(quantile(values, 0.25) == 1.75);               // rank 0.75: three quarters from 1 to 2
  CHECK(quantile(values, 0.9) == Approx(3.7));         // rank 2.7: 3 + 0.7 · (4 − 3)
  CHECK(values == std::vector<double>({4, 1, 3, 2}));  // the caller's order stays
}

TEST_CASE("every quantile of a single value is that value", "[quantile]") {
  const std::vector<double> one = {7};
  for (const double q : {0.0, 0.3, 1.0}) CHECK(quantile(one, q) == 7);
}

TEST_CASE("the mean is the sum over the count", "[quantile]") {
  CHECK(mean(std::vector<double>{1, 2, 6}) == 3);  // 9 / 3
}

}  // namespace kvcast::tests
