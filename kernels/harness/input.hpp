// Input data: a pure function of (seed, index), so that a reference can compute any element of a tensor that only the
// device holds, and every run measures the same numbers. Random, never zeros: products of zeros run faster.
#pragma once

#include <cstdint>

#include "harness/half.hpp"

namespace kvcast::kernels {

// SplitMix64 over a Weyl sequence (Steele, Lea, Flood 2014).
KVCAST_HD inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0xD1342543DE82EF95ull + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Close to standard normal (sum of four uniforms, largest value 3.46). Integers first and one product last: the same
// bits on every machine.
KVCAST_HD inline float random_normal(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t z = random_bits(seed, index);
  const int sum = static_cast<int>(z & 0xFFFF) + static_cast<int>((z >> 16) & 0xFFFF) +
                  static_cast<int>((z >> 32) & 0xFFFF) + static_cast<int>(z >> 48) - 2 * 65535;
  return static_cast<float>(sum) * 2.642941e-5f;  // sqrt(3) / 65536
}

// Below n; the bias is below n / 2^32.
KVCAST_HD inline std::uint32_t random_below(std::uint64_t seed, std::uint64_t index, std::uint32_t n) {
  return static_cast<std::uint32_t>(((random_bits(seed, index) >> 32) * n) >> 32);
}

// A permutation of 0 .. n−1 without a table: a Feistel network of four rounds over the next even power of two, walked
// until it lands below n (Black, Rogaway 2002).
KVCAST_HD inline std::uint32_t permuted(std::uint64_t seed, std::uint32_t i, std::uint32_t n) {
  unsigned half_bits_count = 1;
  while ((std::uint64_t{1} << (2 * half_bits_count)) < n) ++half_bits_count;
  const std::uint32_t mask = (1u << half_bits_count) - 1;
  do {
    std::uint32_t left = i >> half_bits_count, right = i & mask;
    for (unsigned round = 0; round < 4; ++round) {
      const std::uint32_t next = left ^ (static_cast<std::uint32_t>(random_bits(seed + round, right) >> 20) & mask);
      left = right;
      right = next;
    }
    i = (left << half_bits_count) | right;
  } while (i >= n);
  return i;
}

}  // namespace kvcast::kernels
