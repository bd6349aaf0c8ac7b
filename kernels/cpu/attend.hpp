// Attention of a group of query heads over gathered rows of one KV head, in two passes: logits (K), then weights and
// values (V).
#pragma once

#include <algorithm>
#include <cmath>

#include "cpu/vector.hpp"

namespace kvcast::kernels {

struct ItemShape {
  std::size_t tokens, group, dim;
};

// logits: room for group × tokens. lse, where wanted: [group], of scaled logits.
inline void attend_item(const ItemShape& s, const std::uint16_t* keys, const std::uint16_t* values,
                        const float* queries, const std::uint32_t* ids, float* logits, float* out,
                        float* lse = nullptr) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  for (std::size_t t = 0; t < s.tokens; ++t) {
    if (t + kRowsAhead < s.tokens) prefetch_row(keys + ids[t + kRowsAhead] * s.dim, s.dim);
    const std::uint16_t* row = keys + ids[t] * s.dim;
    for (std::size_t g = 0; g < s.group; ++g)
      logits[g * s.tokens + t] = scale * dot_row(queries + g * s.dim, row, s.dim);
  }
  std::fill_n(out, s.group * s.dim, 0.0f);
  for (std::size_t g = 0; g < s.group; ++g) {
    float* weights = logits + g * s.tokens;
    const float most = *std::max_element(weights, weights + s.tokens);
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::size_t t = 0; t < s.tokens; ++t) {
      weights[t] = exp_fast(weights[t] - most);
      total += weights[t];
    }
    if (lse) lse[g] = most + std::log(total);
    const float inverse = 1.0f / total;
    for (std::size_t t = 0; t < s.tokens; ++t) weights[t] *= inverse;
  }
  for (std::size_t t = 0; t < s.tokens; ++t) {
    if (t + kRowsAhead < s.tokens) prefetch_row(values + ids[t + kRowsAhead] * s.dim, s.dim);
    const std::uint16_t* row = values + ids[t] * s.dim;
    for (std::size_t g = 0; g < s.group; ++g) add_row(out + g * s.dim, logits[g * s.tokens + t], row, s.dim);
  }
}

}  // namespace kvcast::kernels
