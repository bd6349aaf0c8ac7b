// Kernels that score pages from their summaries; page_score.cu describes their results.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kMostScoreGroup = 16;

struct ScoreShape {
  int pages, kv_heads, group, dim;
};

// Eight units (pages, landmarks) of one KV head a step of a warp, eight warps a block.
inline constexpr int kScoreUnits = 8;
inline constexpr unsigned kScoreThreads = 256;
inline Grid score_grid(const ScoreShape& s) {
  return {blocks_for(as_size(s.pages), kScoreUnits * kScoreThreads / 32), as_unsigned(s.kv_heads)};
}

// Splits a vector into its negative and its other halves; the remaining entries of each part are 0.
KVCAST_DEVICE void split_by_sign(const Vec16& all, Vec16& negative, Vec16& positive) {
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t mask = (all.w[i] >> 15 & 0x00010001u) * 0xFFFFu;
    negative.w[i] = all.w[i] & mask, positive.w[i] = all.w[i] & ~mask;
  }
}

// If kVectors is 2, a unit has its minima and its maxima, low ≤ high: Σ_j max(q_j·low_j, q_j·high_j) is
// Σ_j q_j⁻·low_j + q_j⁺·high_j, with q_j⁻ = min(q_j, 0) and q_j⁺ = max(q_j, 0), two products on tensor cores. If
// kVectors is 1, it has one vector, and the score is q · unit. A query head is a row of the product, a unit a column.
// A lane reads eight numbers at once, so that the products take dimensions in another order, the same on both sides
// (multiply_add_pair).
// query [kv_heads][group][dim], units [pages][kv_heads][kVectors][dim] -> raw [kv_heads][group][pages], group_max
// [kv_heads][pages]; kChunks: of 32 dimensions, at least dim / 32.
template <int kChunks, int kVectors>
KVCAST_KERNEL KVCAST_BOUNDS(256)
    score_units(ScoreShape s, float scale, const Half* query, const Half* units, float* raw, float* group_max) {
  const int lane = static_cast<int>(lane_index()), row = lane / 4, of_four = lane % 4,
            head = static_cast<int>(block_y());
  const int first = (static_cast<int>(block_x() * (kScoreThreads / 32)) + static_cast<int>(warp_index())) * kScoreUnits;
  if (first >= s.pages) return;
  const std::size_t dim = static_cast<std::size_t>(s.dim), pages = static_cast<std::size_t>(s.pages);
  Vec16 unit[kChunks][kVectors], q[kChunks][2];
  const Half* from = units + (static_cast<std::size_t>(first + row) * static_cast<std::size_t>(s.kv_heads) +
                              static_cast<std::size_t>(head)) *
                                 kVectors * dim;
  KVCAST_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    const int column = c * 32 + of_four * 8;
    KVCAST_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      unit[c][v] = {};
      if (first + row < s.pages && column < s.dim)
        unit[c][v] = load16(from + static_cast<std::size_t>(v) * dim + static_cast<std::size_t>(column));
    }
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int g = row + 8 * h;
      q[c][h] = {};
      if (g < s.group && column < s.dim)
        q[c][h] = load16(query + static_cast<std::size_t>(head * s.group + g) * dim + static_cast<std::size_t>(column));
    }
  }
  float sums[4] = {0, 0, 0, 0};
  KVCAST_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    if constexpr (kVectors == 1) {
      multiply_add_pair(sums, q[c], unit[c][0]);
    } else {
      Vec16 negative[2], positive[2];
      split_by_sign(q[c][0], negative[0], positive[0]);
      split_by_sign(q[c][1], negative[1], positive[1]);
      multiply_add_pair(sums, negative, unit[c][0]);
      multiply_add_pair(sums, positive, unit[c][1]);
    }
  }
  // sums: heads row and row + 8, columns 2 · of_four and the next.
  KVCAST_UNROLL
  for (int i = 0; i < 2; ++i) {
    const std::size_t page = static_cast<std::size_t>(first + of_four * 2 + i);
    float best = kLowest;
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int g = row + 8 * h;
      const float score = sums[2 * h + i] * scale;
      if (g < s.group) best = fmaxf(best, score);
      if (raw && g < s.group && page < pages) raw[static_cast<std::size_t>(head * s.group + g) * pages + page] = score;
    }
    best = fmaxf(best, warp_xor(best, 4));
    best = fmaxf(best, warp_xor(best, 8));
    best = fmaxf(best, warp_xor(best, 16));
    if (group_max && row == 0 && page < pages) group_max[static_cast<std::size_t>(head) * pages + page] = best;
  }
}

template <int kVectors>
void launch_scores(Queue queue, const ScoreShape& s, float scale, const Half* query, const Half* units, float* raw,
                   float* group_max) {
  const auto kernel = s.dim <= 128 ? score_units<4, kVectors> : score_units<8, kVectors>;
  launch(score_grid(s), kScoreThreads, 0, queue, kernel, s, scale, query, units, raw, group_max);
}

// Block-wide maximum or sum; red has one entry for each warp.
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

// Softmax over a row allows no more parallelism than one block for a KV head: the block has many threads and processes
// the group's heads together, so that the latency of the L2 is paid three times and not again for each head.
inline unsigned softmax_threads(int pages) { return pages <= 512 ? 256 : 512; }
inline constexpr std::size_t kSoftmaxShared = 64;

KVCAST_KERNEL KVCAST_BOUNDS(512) softmax_mean(ScoreShape s, const float* raw, float* out) {
  float* red = reinterpret_cast<float*>(shared_memory());
  const int head = static_cast<int>(block_x()), thread = static_cast<int>(thread_x()),
            threads = static_cast<int>(block_threads());
  const std::size_t pages = static_cast<std::size_t>(s.pages);
  const float* rows = raw + static_cast<std::size_t>(head * s.group) * pages;
  // The row's maximum, and then the logarithm of the divisor of its weights.
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
  // The loads of all heads at once are enough in flight, so that the loop over pages is not unrolled.
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
