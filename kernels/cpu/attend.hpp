// Attention of a group of query heads over gathered rows of one KV head, in two passes: logits (K), then weights and
// values (V). A row is converted to floats once for the query heads that process it together.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/vector.hpp"

namespace kvcast::kernels {

struct ItemShape {
  std::size_t tokens, group, dim;
};

// Query heads that process a row together, and floats of a row at a time: their sums stay in vector registers.
#if defined(__AVX512F__)
inline constexpr std::size_t kHeadsTogether = 8, kLanes = 16;
#else
inline constexpr std::size_t kHeadsTogether = 4, kLanes = 8;
#endif
// Rows of V that are added while a part of the outputs stays in registers.
inline constexpr std::size_t kRowsTogether = 16;

template <std::size_t kHeads>
inline void dot_rows(const float* queries, const std::uint16_t* row, std::size_t dim, float* sums) {
  float parts[kHeads][kLanes] = {};
  std::size_t j = 0;
  for (; j + kLanes <= dim; j += kLanes) {
    float key[kLanes];
    for (std::size_t l = 0; l < kLanes; ++l) key[l] = bf16_value(row[j + l]);
    for (std::size_t h = 0; h < kHeads; ++h) {
      for (std::size_t l = 0; l < kLanes; ++l) parts[h][l] += queries[h * dim + j + l] * key[l];
    }
  }
  for (std::size_t h = 0; h < kHeads; ++h) {
    float four[4] = {};
    for (std::size_t l = 0; l < kLanes; ++l) four[l % 4] += parts[h][l];
    sums[h] = (four[0] + four[1]) + (four[2] + four[3]);
    for (std::size_t k = j; k < dim; ++k) sums[h] += queries[h * dim + k] * bf16_value(row[k]);
  }
}

// Rows that are added together, and the following rows, which are prefetched piece by piece meanwhile, because a core
// drops prefetches that come faster than it can translate and fetch.
struct RowBlock {
  std::size_t n;
  std::array<const std::uint16_t*, kRowsTogether> rows, next;
};

// out [kHeads][dim] += Σ weights[h · stride + t] · rows[t].
template <std::size_t kHeads>
inline void add_rows(float* out, const float* weights, std::size_t stride, const RowBlock& block, std::size_t dim) {
  constexpr std::size_t kWide = 2 * kLanes;
  std::size_t j = 0;
  for (; j + kWide <= dim; j += kWide) {
    float sums[kHeads][kWide];
    for (std::size_t h = 0; h < kHeads; ++h) std::copy_n(out + h * dim + j, kWide, sums[h]);
    for (std::size_t t = 0; t < block.n; ++t) {
      __builtin_prefetch(block.next[t] + j);
      float value[kWide];
      for (std::size_t l = 0; l < kWide; ++l) value[l] = bf16_value(block.rows[t][j + l]);
      for (std::size_t h = 0; h < kHeads; ++h) {
        const float weight = weights[h * stride + t];
        for (std::size_t l = 0; l < kWide; ++l) sums[h][l] += weight * value[l];
      }
    }
    for (std::size_t h = 0; h < kHeads; ++h) std::copy_n(sums[h], kWide, out + h * dim + j);
  }
  for (; j < dim; ++j) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      for (std::size_t t = 0; t < block.n; ++t)
        out[h * dim + j] += weights[h * stride + t] * bf16_value(block.rows[t][j]);
    }
  }
}

// Calls heads.operator()<n>(first) for all heads of a group, in the largest blocks possible: 7 are 4, 2 and 1.
template <std::size_t kMost = kHeadsTogether, typename Heads>
inline void by_heads(std::size_t group, std::size_t first, const Heads& heads) {
  while (first + kMost <= group) heads.template operator()<kMost>(first), first += kMost;
  if constexpr (kMost > 1) {
    if (first < group) by_heads<kMost / 2>(group, first, heads);
  }
}

// logits: scaled, [group][tokens].
inline void score_item(const ItemShape& s, const std::uint16_t* keys, const float* queries, const std::uint32_t* ids,
                       float* logits) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  for (std::size_t t = 0; t < s.tokens; ++t) {
    if (t + kRowsAhead < s.tokens) prefetch_row(keys + ids[t + kRowsAhead] * s.dim, s.dim);
    const std::uint16_t* row = keys + ids[t] * s.dim;
    by_heads(s.group, 0, [&]<std::size_t kHeads>(std::size_t first) {
      float sums[kHeads];
      dot_rows<kHeads>(queries + first * s.dim, row, s.dim, sums);
      for (std::size_t h = 0; h < kHeads; ++h) logits[(first + h) * s.tokens + t] = scale * sums[h];
    });
  }
}

// Turns logits into weights that sum to 1; returns their log-sum-exp.
inline float weigh(float* logits, std::size_t tokens) {
  float most = logits[0], total = 0;
#pragma omp simd reduction(max : most)
  for (std::size_t t = 0; t < tokens; ++t) most = std::max(most, logits[t]);
#pragma omp simd reduction(+ : total)
  for (std::size_t t = 0; t < tokens; ++t) {
    logits[t] = exp_fast(logits[t] - most);
    total += logits[t];
  }
  const float inverse = 1.0f / total;
  for (std::size_t t = 0; t < tokens; ++t) logits[t] *= inverse;
  return most + std::log(total);
}

inline void add_values(const ItemShape& s, const std::uint16_t* values, const std::uint32_t* ids, const float* weights,
                       float* out) {
  std::fill_n(out, s.group * s.dim, 0.0f);
  const auto row = [&](std::size_t t) { return values + ids[std::min(t, s.tokens - 1)] * s.dim; };
  for (std::size_t t = 0; t < kRowsTogether; ++t) prefetch_row(row(t), s.dim);
  RowBlock block;
  for (std::size_t t = 0; t < s.tokens; t += kRowsTogether) {
    block.n = std::min(kRowsTogether, s.tokens - t);
    for (std::size_t i = 0; i < kRowsTogether; ++i)
      block.rows[i] = row(t + i), block.next[i] = row(t + kRowsTogether + i);
    by_heads(s.group, 0, [&]<std::size_t kHeads>(std::size_t first) {
      add_rows<kHeads>(out + first * s.dim, weights + first * s.tokens + t, s.tokens, block, s.dim);
    });
  }
}

// tokens, group, dim > 0. logits: room for group × tokens. lse, if requested: [group], of scaled logits.
inline void attend_item(const ItemShape& s, const std::uint16_t* keys, const std::uint16_t* values,
                        const float* queries, const std::uint32_t* ids, float* logits, float* out,
                        float* lse = nullptr) {
  score_item(s, keys, queries, ids, logits);
  for (std::size_t g = 0; g < s.group; ++g) {
    const float sum = weigh(logits + g * s.tokens, s.tokens);
    if (lse) lse[g] = sum;
  }
  add_values(s, values, ids, logits, out);
}

}  // namespace kvcast::kernels
