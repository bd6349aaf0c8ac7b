// Division by a number that the host knows, on the device: a product and a shift. The instruction sequence for a
// divisor that only the device knows costs 20 to 30 instructions, which matters in kernels that move 16 bytes at a
// time.
#pragma once

#include <cstdint>

#include "harness/half.hpp"

namespace kvcast::kernels {

// Divides numbers below 2^31 by 1 to 2^31 − 1; smaller divisors count as 1 (Granlund, Montgomery 1994): the factor
// exceeds 2^shift / by by less than one, so that the quotient is exact.
struct Divisor {
  std::uint32_t by = 1, factor = 0, shift = 31;

  explicit Divisor(int divisor) : by(divisor > 1 ? static_cast<std::uint32_t>(divisor) : 1) {
    while ((std::uint64_t{1} << (shift - 31)) < by) ++shift;
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + by - 1) / by);
  }
  KVCAST_HD std::uint32_t quotient(std::uint32_t n) const {
    return static_cast<std::uint32_t>((std::uint64_t{n} * factor) >> shift);
  }
};

}  // namespace kvcast::kernels
