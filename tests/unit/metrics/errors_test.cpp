#include "metrics/errors.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace kvcast::tests {

using namespace metrics;

TEST_CASE("errors are summarized by absolute value, the bias with its sign") {
  // sizes 0.1 0.1 0.2 0.4 0.5; the signed median is 0.1; p90 lies 0.6 of the way from 0.4 to 0.5
  const std::vector<double> errors = {0.1, -0.1, 0.2, -0.4, 0.5};
  const ErrorSummary s = summarise_errors(errors);
  CHECK(s.n == 5);
  CHECK(s.median == Approx(0.2));
  CHECK(s.p90 == Approx(0.46));
  CHECK(s.max == Approx(0.5));
  CHECK(s.bias == Approx(0.1));
  CHECK(summarise_errors({}).n == 0);
}

}  // namespace kvcast::tests
