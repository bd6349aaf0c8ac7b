#include <catch2/catch.hpp>

#include "hardware/sustained.hpp"
#include "unit/hardware/round_machine.hpp"

namespace kvcast::tests {

using Catch::Detail::Approx;

TEST_CASE("a board slows down over a quarter of a second to four seconds") {
  config::Hardware machine = round_machine();
  machine.gpu.sustained_rate = {0.76, Origin::kLiterature, 0.1, "a long kernel"};
  const auto share = [&](double seconds) { return hardware::sustained_share(machine.gpu, seconds); };
  CHECK(share(0) == 1);
  CHECK(share(0.01) == 1);
  CHECK(share(0.25) == 1);
  CHECK(share(1) == Approx(0.88));  // half of the way from 1/4 to 4 by its logarithm
  CHECK(share(4) == Approx(0.76));
  CHECK(share(1000) == Approx(0.76));

  const Value products = hardware::sustained(machine, 1).gpu.tensor_flops;
  CHECK(products.value == Approx(88e12));
  // The rate is off by 0.1 · 0.76, of which half applies after a second: 0.038 of 0.88.
  CHECK(products.uncertainty == Approx(std::hypot(0.1, 0.038 / 0.88)));
  CHECK(products.source == "a long kernel");
}

}  // namespace kvcast::tests
