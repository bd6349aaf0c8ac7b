// The kernel of dim_score.cu, which describes it.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kMostDimGroup = 8;
inline constexpr int kMostScoreDims = 256;

struct DimShape {
  int n, kv_heads, group, dim, r;
  int bounds = 1;  // 2: keys are maxima, then minima, of pages, and a dimension with a negative sign reads its minima
};

inline constexpr int kDimWarps = 4, kDimColumns = 256;  // of a block
inline std::size_t score_dims_shared(int r) {
  return as_size(r) * (kMostDimGroup + 1) * 4 + 16 + 2 * kDimWarps * kDimColumns * 4;
}

// keys [kv_heads][bounds][dim][n], dims [kv_heads][r], query [kv_heads][group][dim], signs [kv_heads][dim] with two
// bounds -> scores [kv_heads][group][n]. A lane holds eight columns; each of the four warps takes every fourth
// dimension, so that short rows, too, have many loads in flight, and their sums are joined at the end.
KVCAST_KERNEL KVCAST_BOUNDS(128) score_dims(DimShape s, const Half* keys, const std::uint32_t* dims, const Half* query,
                                            const float* signs, float* scores) {
  constexpr int kInFlight = 4;
  float* sums_of = reinterpret_cast<float*>(shared_memory());                             // [2][warps][columns]
  float* weights = sums_of + 2 * kDimWarps * kDimColumns;                                 // [r][kMostDimGroup]
  std::uint32_t* rows = reinterpret_cast<std::uint32_t*>(weights + s.r * kMostDimGroup);  // [r]
  const int head = static_cast<int>(block_y()), thread = static_cast<int>(thread_x());
  const int lane = static_cast<int>(lane_index()), warp = static_cast<int>(warp_index());
  for (int i = thread; i < s.r * kMostDimGroup; i += 128) {
    const int g = i % kMostDimGroup, d = static_cast<int>(dims[head * s.r + i / kMostDimGroup]);
    weights[i] = g < s.group ? to_float(query[(head * s.group + g) * s.dim + d]) : 0;
    if (g != 0) continue;
    const bool lower = s.bounds == 2 && signs[head * s.dim + d] < 0;
    rows[i / kMostDimGroup] = static_cast<std::uint32_t>(head * s.bounds * s.dim + (lower ? s.dim : 0) + d);
  }
  block_sync();
  const std::size_t n = static_cast<std::size_t>(s.n), first = std::size_t{block_x()} * kDimColumns,
                    column = first + static_cast<std::size_t>(lane) * 8;
  float sums[kMostDimGroup][8];
  KVCAST_UNROLL
  for (int i = 0; i < kMostDimGroup * 8; ++i) sums[i / 8][i % 8] = 0;
  for (int j = warp; j < s.r && column < n; j += kDimWarps * kInFlight) {
    Vec16 raw[kInFlight];
    KVCAST_UNROLL
    for (int a = 0; a < kInFlight; ++a) {
      if (j + a * kDimWarps < s.r) raw[a] = load16(keys + rows[j + a * kDimWarps] * n + column);
    }
    KVCAST_UNROLL
    for (int a = 0; a < kInFlight; ++a) {
      if (j + a * kDimWarps >= s.r) break;
      const float* weight = weights + (j + a * kDimWarps) * kMostDimGroup;
      float x[8];
      unpack8(raw[a], x);
      KVCAST_UNROLL
      for (int g = 0; g < kMostDimGroup; ++g) {
        if (g < s.group) {
          KVCAST_UNROLL
          for (int i = 0; i < 8; ++i) sums[g][i] += weight[g] * x[i];
        }
      }
    }
  }
  // Two query heads at a time, each by half of the block's threads, four columns to a thread.
  const int quarter = thread % 64 * 4;
  KVCAST_UNROLL
  for (int g = 0; g < kMostDimGroup; g += 2) {
    if (g >= s.group) break;
    block_sync();
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      KVCAST_UNROLL
      for (int i = 0; i < 8; i += 4) {
        const Vec16 four{{as_bits(sums[g + h][i]), as_bits(sums[g + h][i + 1]), as_bits(sums[g + h][i + 2]),
                          as_bits(sums[g + h][i + 3])}};
        store16_shared(sums_of + (h * kDimWarps + warp) * kDimColumns + lane * 8 + i, four);
      }
    }
    block_sync();
    const int mine = g + thread / 64;
    const std::size_t at = first + static_cast<std::size_t>(quarter);
    if (mine >= s.group || at >= n) continue;
    float total[4] = {0, 0, 0, 0};
    KVCAST_UNROLL
    for (int w = 0; w < kDimWarps; ++w) {
      const Vec16 part = load16(sums_of + (thread / 64 * kDimWarps + w) * kDimColumns + quarter);
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i) total[i] += as_float(part.w[i]);
    }
    store16(scores + static_cast<std::size_t>(head * s.group + mine) * n + at,
            {{as_bits(total[0]), as_bits(total[1]), as_bits(total[2]), as_bits(total[3])}});
  }
}

}  // namespace kvcast::kernels
