// Selects the k largest of a row; measured by topk.cpp, which describes the method.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "harness/half.hpp"

namespace kvcast::kernels {

// Larger float, larger key; among equal floats the lower index has the larger key.
inline std::uint64_t key_of(float score, std::size_t index) {
  const std::uint32_t bits = float_bits(score + 0.0f);  // −0 equals +0
  const std::uint32_t ordered = (bits >> 31) ? ~bits : bits | 0x80000000u;
  return (std::uint64_t{ordered} << 32) | (0xFFFFFFFFu - static_cast<std::uint32_t>(index));
}

// keys: room for n.
inline void select_row(const float* scores, std::size_t n, std::size_t k, std::uint64_t* keys, std::uint32_t* ids) {
  for (std::size_t i = 0; i < n; ++i) keys[i] = key_of(scores[i], i);
  if (k < n) std::nth_element(keys, keys + k, keys + n, std::greater<>());
  for (std::size_t i = 0; i < k; ++i) ids[i] = 0xFFFFFFFFu - static_cast<std::uint32_t>(keys[i]);
}

}  // namespace kvcast::kernels
