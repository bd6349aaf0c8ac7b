// Kernels that score pages from their summaries; what they compute: page_score.cu.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kMostScoreGroup = 16;

struct ScoreShape {
  int pages, kv_heads, group, dim;
};

// One warp for a (page, KV head): the summaries are read once for the group. raw [kv_heads][group][pages].
KVCAST_KERNEL KVCAST_BOUNDS(256)
    score_pages(ScoreShape s, const Half* query, const Half* summaries, float* raw, float* group_max) {
  const int item = static_cast<int>(block_x() * (block_threads() / 32) + warp_index());
  if (item >= s.pages * s.kv_heads) return;
  const int head = item % s.kv_heads, page = item / s.kv_heads, chunk = static_cast<int>(lane_index());
  const bool active = chunk < s.dim / 8;
  float low[8], high[8];
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) low[i] = high[i] = 0;
  const std::size_t dim = static_cast<std::size_t>(s.dim);
  if (active) {
    const Half* from = summaries + static_cast<std::size_t>(item) * 2 * dim + static_cast<std::size_t>(chunk) * 8;
    unpack8(load16(from), low);
    unpack8(load16(from + dim), high);
  }
  float best = kLowest;
  for (int g = 0; g < s.group; ++g) {
    float q[8], sum = 0;
    if (active) {
      unpack8(load16(query + static_cast<std::size_t>(head * s.group + g) * dim + static_cast<std::size_t>(chunk) * 8),
              q);
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) sum += fmaxf(q[i] * low[i], q[i] * high[i]);
    }
    sum = warp_sum(sum);
    best = fmaxf(best, sum);
    if (raw && chunk == 0)
      raw[static_cast<std::size_t>(head * s.group + g) * static_cast<std::size_t>(s.pages) +
          static_cast<std::size_t>(page)] = sum;
  }
  if (group_max && chunk == 0)
    group_max[static_cast<std::size_t>(head) * static_cast<std::size_t>(s.pages) + static_cast<std::size_t>(page)] =
        best;
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

KVCAST_KERNEL KVCAST_BOUNDS(256) softmax_mean(ScoreShape s, const float* raw, float* out) {
  float* red = reinterpret_cast<float*>(shared_memory());
  const int head = static_cast<int>(block_x()), thread = static_cast<int>(thread_x()),
            threads = static_cast<int>(block_threads());
  const std::size_t pages = static_cast<std::size_t>(s.pages);
  float most[kMostScoreGroup], scale[kMostScoreGroup];
  KVCAST_UNROLL
  for (int g = 0; g < kMostScoreGroup; ++g) {
    if (g >= s.group) break;
    const float* row = raw + static_cast<std::size_t>(head * s.group + g) * pages;
    float top = kLowest, sum = 0;
    for (int p = thread; p < s.pages; p += threads) top = fmaxf(top, row[p]);
    most[g] = block_join(top, red, [](float a, float b) { return fmaxf(a, b); });
    for (int p = thread; p < s.pages; p += threads) sum += exp2_fast((row[p] - most[g]) * 1.44269504f);
    scale[g] = 1.0f / (block_join(sum, red, [](float a, float b) { return a + b; }) * static_cast<float>(s.group));
  }
  for (int p = thread; p < s.pages; p += threads) {
    float mean = 0;
    KVCAST_UNROLL
    for (int g = 0; g < kMostScoreGroup; ++g) {
      if (g >= s.group) break;
      const float* row = raw + static_cast<std::size_t>(head * s.group + g) * pages;
      mean += exp2_fast((row[p] - most[g]) * 1.44269504f) * scale[g];
    }
    out[static_cast<std::size_t>(head) * pages + static_cast<std::size_t>(p)] = mean;
  }
}

}  // namespace kvcast::kernels
