// Inputs of the CPU benchmarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/bench.hpp"
#include "harness/half.hpp"
#include "harness/input.hpp"

namespace kvcast::kernels {

// Normal numbers as bfloat16.
inline std::vector<std::uint16_t> bf16_normals(std::uint64_t seed, std::size_t n) {
  std::vector<std::uint16_t> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = bf16_of(random_normal(seed, i));
  return out;
}

// A large array cheaply: 4 bits of a random word vary sign and exponent, the rest the mantissa. Not normal, never zero.
inline std::vector<std::uint16_t> bf16_noise(std::uint64_t seed, std::size_t n) {
  std::vector<std::uint16_t> out(n);
  for (std::size_t i = 0; i < n; i += 4) {
    const std::uint64_t bits = random_bits(seed, i);
    for (std::size_t j = 0; j < std::min<std::size_t>(4, n - i); ++j) {
      const std::uint16_t part = static_cast<std::uint16_t>(bits >> (16 * j));
      out[i + j] = static_cast<std::uint16_t>((part & 0x81FFu) | 0x3E00u);
    }
  }
  return out;
}

inline std::vector<float> normals(std::uint64_t seed, std::size_t n) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = random_normal(seed, i);
  return out;
}

inline std::vector<float> values_of(const std::vector<std::uint16_t>& bf16) {
  std::vector<float> out(bf16.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_value(bf16[i]);
  return out;
}

// count tokens of 0 .. n−1 in ascending-or-not random runs of run neighbours: count / run runs, no token twice.
inline std::vector<std::uint32_t> random_runs(std::uint64_t seed, std::uint32_t n, std::uint32_t count,
                                              std::uint32_t run) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < count / run; ++i) {
    const std::uint32_t start = permuted(seed, i, n / run) * run;
    for (std::uint32_t j = 0; j < run; ++j) ids.push_back(start + j);
  }
  return ids;
}

// Skips a case that wants more threads than there are cores: they would measure the scheduler.
inline bool too_many_threads(const Machine& machine, std::int64_t threads) { return threads > machine.cores; }

}  // namespace kvcast::kernels
