// The kernel of dim_score.cu, which says what it computes.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kMostDimGroup = 8;
inline constexpr int kMostScoreDims = 256;

struct DimShape {
  int n, kv_heads, group, dim, r;
  int bounds = 1;  // 2: keys are maxima, then minima, of pages, and a dimension with a negative sign reads its minima
};

// keys [kv_heads][bounds][dim][n], dims [kv_heads][r], query [kv_heads][group][dim], signs [kv_heads][dim] with two
// bounds -> scores [kv_heads][group][n].
KVCAST_KERNEL KVCAST_BOUNDS(128) score_dims(DimShape s, const Half* keys, const std::uint32_t* dims, const Half* query,
                                            const float* signs, float* scores) {
  float* weights = reinterpret_cast<float*>(shared_memory());  // [r][kMostDimGroup]
  const int head = static_cast<int>(block_y());
  for (int i = static_cast<int>(thread_x()); i < s.r * kMostDimGroup; i += static_cast<int>(block_threads())) {
    const int g = i % kMostDimGroup, d = static_cast<int>(dims[head * s.r + i / kMostDimGroup]);
    weights[i] = g < s.group ? to_float(query[(head * s.group + g) * s.dim + d]) : 0;
  }
  block_sync();
  const int column = static_cast<int>(block_x() * block_threads() + thread_x()) * 8;
  if (column >= s.n) return;
  float sums[kMostDimGroup][8];
  KVCAST_UNROLL
  for (int i = 0; i < kMostDimGroup * 8; ++i) sums[i / 8][i % 8] = 0;
  const std::size_t n = static_cast<std::size_t>(s.n);
  for (int j = 0; j < s.r; ++j) {
    const std::uint32_t d = dims[head * s.r + j];
    const bool lower = s.bounds == 2 && signs[head * s.dim + static_cast<int>(d)] < 0;
    const std::size_t row = static_cast<std::size_t>(head * s.bounds * s.dim + (lower ? s.dim : 0)) + d;
    float x[8];
    unpack8(load16(keys + row * n + static_cast<std::size_t>(column)), x);
    KVCAST_UNROLL
    for (int g = 0; g < kMostDimGroup; ++g) {
      if (g < s.group) {
        KVCAST_UNROLL
        for (int i = 0; i < 8; ++i) sums[g][i] += weights[j * kMostDimGroup + g] * x[i];
      }
    }
  }
  KVCAST_UNROLL
  for (int g = 0; g < kMostDimGroup; ++g) {
    if (g < s.group) {
      float* to = scores + static_cast<std::size_t>(head * s.group + g) * n + static_cast<std::size_t>(column);
      store16(to, {{as_bits(sums[g][0]), as_bits(sums[g][1]), as_bits(sums[g][2]), as_bits(sums[g][3])}});
      store16(to + 4, {{as_bits(sums[g][4]), as_bits(sums[g][5]), as_bits(sums[g][6]), as_bits(sums[g][7])}});
    }
  }
}

}  // namespace kvcast::kernels
