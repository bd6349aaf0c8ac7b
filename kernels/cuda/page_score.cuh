// Kernels that score pages from their summaries; what they compute: page_score.cu.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kMostScoreGroup = 16;

struct ScoreShape {
  int pages, kv_heads, group, dim;
};

// Lanes that hold a row of dim halves, eight each: half a warp, where a row has at most 128, so that none is idle.
KVCAST_HD inline int row_lanes(int dim) { return dim <= 128 ? 16 : 32; }
inline Grid score_pages_grid(const ScoreShape& s) {
  return {blocks_for(as_size(s.pages) * as_size(s.kv_heads), as_size(256 / row_lanes(s.dim)))};
}

// A thread's share of that grid: eight numbers of the row of a unit and a KV head, the units (pages, landmarks)
// outermost.
struct ScorePlace {
  int lanes, row, unit, head, column;  // lanes: of the row; column: the first of the eight
  bool inside, active;                 // inside: there is such a row; active: and it has these eight
};
KVCAST_DEVICE ScorePlace score_place(const ScoreShape& s) {
  const int lanes = row_lanes(s.dim), thread = static_cast<int>(thread_x()), column = thread % lanes * 8;
  const int row = (static_cast<int>(block_x()) * 256 + thread) / lanes;
  const bool inside = row < s.pages * s.kv_heads;
  return {lanes, row, row / s.kv_heads, row % s.kv_heads, column, inside, inside && column < s.dim};
}
// The thread's eight numbers of a query of its KV head's group, in [kv_heads][group][dim]; and the score of the unit by
// that query, in [kv_heads][group][units].
KVCAST_DEVICE std::size_t query_index(const ScoreShape& s, const ScorePlace& at, int g) {
  return static_cast<std::size_t>(at.head * s.group + g) * static_cast<std::size_t>(s.dim) +
         static_cast<std::size_t>(at.column);
}
KVCAST_DEVICE std::size_t score_index(const ScoreShape& s, const ScorePlace& at, int g) {
  return static_cast<std::size_t>(at.head * s.group + g) * static_cast<std::size_t>(s.pages) +
         static_cast<std::size_t>(at.unit);
}

// Sum over the lanes of a row.
KVCAST_DEVICE float row_sum(float x, int lanes) {
  KVCAST_UNROLL
  for (unsigned m = 8; m > 0; m >>= 1) x += warp_xor(x, m);
  return lanes == 32 ? x + warp_xor(x, 16) : x;
}

// A row of lanes for a (page, KV head): the summaries are read once for the group. raw [kv_heads][group][pages].
KVCAST_KERNEL KVCAST_BOUNDS(256)
    score_pages(ScoreShape s, const Half* query, const Half* summaries, float* raw, float* group_max) {
  const ScorePlace at = score_place(s);
  float low[8], high[8];
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) low[i] = high[i] = 0;
  if (at.active) {
    const std::size_t dim = static_cast<std::size_t>(s.dim);
    const Half* from = summaries + static_cast<std::size_t>(at.row) * 2 * dim + static_cast<std::size_t>(at.column);
    const Vec16 both[2] = {load16(from), load16(from + dim)};
    unpack8(both[0], low);
    unpack8(both[1], high);
  }
  float best = kLowest;
  for (int g = 0; g < s.group; ++g) {
    float q[8], sum = 0;
    if (at.active) {
      unpack8(load16(query + query_index(s, at, g)), q);
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) sum += fmaxf(q[i] * low[i], q[i] * high[i]);
    }
    sum = row_sum(sum, at.lanes);
    best = fmaxf(best, sum);
    if (raw && at.inside && at.column == 0) raw[score_index(s, at, g)] = sum;
  }
  if (group_max && at.inside && at.column == 0)
    group_max[static_cast<std::size_t>(at.head) * static_cast<std::size_t>(s.pages) +
              static_cast<std::size_t>(at.unit)] = best;
}

// Block-wide maximum or sum; red has a place for each warp.
template <typename Join>
KVCAST_DEVICE float block_join(float x, float* red, Join join) {
  KVCAST_UNROLL
  for (unsigned m = 16; m > 0; m >>= 1) x = join(x, warp_xor(x, m));
  block_sync();
  if (lane_index() == 0) red[warp_index()] = x;
  block_sync();
  float out = red[0];
  for (unsigned w = 1; w < block_threads() / 32; ++w) out = join(out, red[w]);
  return out;
}

// One block for a head is all the parallelism that softmax over a row leaves: many threads, and the group's heads side
// by side, so that the row's way from the L2 is paid three times and not for each head anew.
inline unsigned softmax_threads(int pages) { return pages <= 512 ? 256 : 512; }
inline constexpr std::size_t kSoftmaxShared = 64;

KVCAST_KERNEL KVCAST_BOUNDS(512) softmax_mean(ScoreShape s, const float* raw, float* out) {
  float* red = reinterpret_cast<float*>(shared_memory());
  const int head = static_cast<int>(block_x()), thread = static_cast<int>(thread_x()),
            threads = static_cast<int>(block_threads());
  const std::size_t pages = static_cast<std::size_t>(s.pages);
  const float* rows = raw + static_cast<std::size_t>(head * s.group) * pages;
  // The row's maximum, and then the logarithm of what its weights are divided by.
  float level[kMostScoreGroup], sums[kMostScoreGroup];
  KVCAST_UNROLL
  for (int g = 0; g < kMostScoreGroup; ++g) level[g] = kLowest, sums[g] = 0;
  const auto each_head = [&](auto of) {
    KVCAST_UNROLL
    for (int g = 0; g < kMostScoreGroup; ++g) {
      if (g >= s.group) break;
      of(g);
    }
  };
  const auto log2_of = [&](int g, int p) {
    return rows[static_cast<std::size_t>(g) * pages + static_cast<std::size_t>(p)] * 1.44269504f;
  };
  // The heads are enough to load at a time.
  KVCAST_ROLLED
  for (int p = thread; p < s.pages; p += threads) each_head([&](int g) { level[g] = fmaxf(level[g], log2_of(g, p)); });
  each_head([&](int g) { level[g] = block_join(level[g], red, [](float a, float b) { return fmaxf(a, b); }); });
  KVCAST_ROLLED
  for (int p = thread; p < s.pages; p += threads)
    each_head([&](int g) { sums[g] += exp2_fast(log2_of(g, p) - level[g]); });
  each_head([&](int g) {
    const float sum = block_join(sums[g], red, [](float a, float b) { return a + b; });
    level[g] += log2_fast(sum * static_cast<float>(s.group));
  });
  KVCAST_ROLLED
  for (int p = thread; p < s.pages; p += threads) {
    float mean = 0;
    each_head([&](int g) { mean += exp2_fast(log2_of(g, p) - level[g]); });
    out[static_cast<std::size_t>(head) * pages + static_cast<std::size_t>(p)] = mean;
  }
}

}  // namespace kvcast::kernels
