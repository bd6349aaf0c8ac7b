#include "base/interval.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

using namespace kvcast;

TEST_CASE("independent causes add as squares, those that raise and those that lower apart") {
  Spread spread(10);
  spread.add(std::array{7.0, 12.0});                  // 3 less, 2 more
  spread.add(std::array{6.0, 10.0});                  // 4 less, nothing more
  spread.add(std::array{11.0, 11.5});                 // both more: the farther one, 1.5
  CHECK(spread.interval().low == Approx(10 - 5));     // sqrt(9 + 16)
  CHECK(spread.interval().high == Approx(10 + 2.5));  // sqrt(4 + 2.25)
}

TEST_CASE("without causes the interval is a point") {
  Spread spread(-3);
  CHECK(spread.interval().low == -3);
  spread.add(std::vector<double>{});
  CHECK(spread.interval().high == -3);
}
