// Loops over rows of bfloat16 that compilers turn into vector code (built with -fopenmp-simd).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "harness/half.hpp"

namespace kvcast::kernels {

inline float dot_row(const float* q, const std::uint16_t* row, std::size_t dim) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t j = 0; j < dim; ++j) sum += q[j] * bf16_value(row[j]);
  return sum;
}

// Rows at random positions are prefetched this many ahead: by itself a core prefetches only a row or two, and waits for
// the memory in between.
inline constexpr std::size_t kRowsAhead = 8;

inline void prefetch_row(const std::uint16_t* row, std::size_t dim) {
  constexpr std::size_t kLine = 64 / sizeof(std::uint16_t);
  for (std::size_t j = 0; j < dim; j += kLine) __builtin_prefetch(row + j);
}

// e^x for x in [-87, 88]: within 3e-7 near 0, 6e-6 at the ends; below, about 1e-38. 2^(x log2 e), fraction by a
// polynomial of degree 6 (Taylor coefficients of 2^f on [-1/2, 1/2]); written without branches so that it vectorises.
inline float exp_fast(float x) {
  const float y = (x < -87.0f ? -87.0f : x) * 1.44269504f;
  const float whole = std::nearbyint(y);
  const float f = y - whole;
  float p = 1.54035304e-4f;
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  return p * bits_float(static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) + 127) << 23);
}

}  // namespace kvcast::kernels
