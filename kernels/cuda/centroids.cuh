// The kernels of centroids.cu, which describes them.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kCentroidDim = 128;
inline constexpr int kMostCentroidGroup = 8;
inline constexpr int kMostProbes = 16;
inline constexpr unsigned kRecallThreads = 256;

struct RecallShape {
  int kv_heads, group, centroids, probes, list, context;
};

// centroids [kv_heads][group][centroids][dim] of unit length, query [kv_heads][group][dim] -> best
// [kv_heads][centroids]
KVCAST_KERNEL KVCAST_BOUNDS(256) score_centroids(RecallShape s, const Half* query, const Half* centroids, float* best) {
  const int item = static_cast<int>(block_x() * 8 + warp_index()), head = static_cast<int>(block_y());
  if (item >= s.centroids) return;
  // Sixteen lanes hold a row of 128 halves: two query heads of the group at a time.
  const int column = static_cast<int>(lane_index()) % 16 * 8;
  float most = kLowest;
  for (int pair = 0; pair < s.group; pair += 2) {
    const int g = pair + static_cast<int>(lane_index()) / 16;
    float dot = 0, squares = 0, length = 0;
    if (g < s.group) {
      const std::size_t row = static_cast<std::size_t>(head * s.group + g);
      float x[8], y[8];
      unpack8(load16(query + row * kCentroidDim + column), x);
      unpack8(load16(centroids +
                     (row * static_cast<std::size_t>(s.centroids) + static_cast<std::size_t>(item)) * kCentroidDim +
                     column),
              y);
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) {
        dot += x[i] * y[i];
        squares += x[i] * x[i];
        length += y[i] * y[i];
      }
    }
    KVCAST_UNROLL
    for (unsigned m = 8; m > 0; m >>= 1) {
      dot += warp_xor(dot, m);
      squares += warp_xor(squares, m);
      length += warp_xor(length, m);
    }
    const float norms = sqrtf(squares * length);
    if (g < s.group) most = fmaxf(most, norms > 0 ? dot / norms : 0);
  }
  most = fmaxf(most, warp_xor(most, 16));
  if (lane_index() == 0)
    best[static_cast<std::size_t>(head) * static_cast<std::size_t>(s.centroids) + static_cast<std::size_t>(item)] =
        most;
}

struct RecallScratch {
  float* scores;           // [centroids]
  float* warp_best;        // [8]
  std::uint32_t* warp_at;  // [8]
  std::uint32_t* probes;   // [kMostProbes]
  std::uint32_t* counts;   // [8]
  std::uint32_t* seen;     // one bit for each token
};

// The largest remaining score, the lower centroid first among equals; all threads call it together.
KVCAST_DEVICE std::uint32_t take_best(const RecallScratch& m, int centroids) {
  float best = kLowest * 2;
  std::uint32_t at = 0xFFFFFFFFu;
  for (int i = static_cast<int>(thread_x()); i < centroids; i += static_cast<int>(kRecallThreads)) {
    if (m.scores[i] > best) best = m.scores[i], at = static_cast<std::uint32_t>(i);
  }
  for (unsigned step = 16; step > 0; step >>= 1) {
    const float other = warp_xor(best, step);
    const std::uint32_t other_at = warp_from(at, lane_index() ^ step);
    if (other > best || (other == best && other_at < at)) best = other, at = other_at;
  }
  if (lane_index() == 0) m.warp_best[warp_index()] = best, m.warp_at[warp_index()] = at;
  block_sync();
  for (unsigned w = 0; w < kRecallThreads / 32; ++w) {
    if (m.warp_best[w] > best || (m.warp_best[w] == best && m.warp_at[w] < at))
      best = m.warp_best[w], at = m.warp_at[w];
  }
  block_sync();
  if (thread_x() == 0 && at < static_cast<std::uint32_t>(centroids)) m.scores[at] = kLowest * 3;
  block_sync();
  return at;
}

// ids [kv_heads][centroids][list] -> out [kv_heads][probes · list], sizes [kv_heads].
KVCAST_KERNEL KVCAST_BOUNDS(256)
    recall_ids(RecallShape s, const float* best, const std::uint32_t* ids, std::uint32_t* out, std::uint32_t* sizes) {
  std::uint32_t* words = reinterpret_cast<std::uint32_t*>(shared_memory());
  const RecallScratch m{reinterpret_cast<float*>(words + 64),
                        reinterpret_cast<float*>(words),
                        words + 8,
                        words + 16,
                        words + 32,
                        words + 64 + s.centroids};
  const int head = static_cast<int>(block_x()), thread = static_cast<int>(thread_x());
  for (int i = thread; i < s.centroids; i += static_cast<int>(kRecallThreads))
    m.scores[i] = best[static_cast<std::size_t>(head * s.centroids + i)];
  for (int i = thread; i < (s.context + 31) / 32; i += static_cast<int>(kRecallThreads)) m.seen[i] = 0;
  block_sync();
  std::uint32_t written = 0;
  for (int p = 0; p < s.probes; ++p) {
    const std::uint32_t centroid = take_best(m, s.centroids);
    const std::uint32_t* list =
        ids + (static_cast<std::size_t>(head) * static_cast<std::size_t>(s.centroids) + centroid) *
                  static_cast<std::size_t>(s.list);
    for (int base = 0; base < s.list; base += static_cast<int>(kRecallThreads)) {
      const bool inside = base + thread < s.list;
      const std::uint32_t id = inside ? list[base + thread] : 0, bit = 1u << (id % 32);
      const bool fresh = inside && (atomic_or(m.seen + id / 32, bit) & bit) == 0;
      const std::uint32_t mask = warp_ballot(fresh);
      if (lane_index() == 0) m.counts[warp_index()] = count_bits(mask);
      block_sync();
      std::uint32_t before = written;
      for (unsigned w = 0; w < kRecallThreads / 32; ++w) {
        before += w < warp_index() ? m.counts[w] : 0;
        written += m.counts[w];
      }
      if (fresh)
        out[static_cast<std::size_t>(head * s.probes * s.list) + before +
            count_bits(mask & ((1u << lane_index()) - 1u))] = id;
      block_sync();
    }
  }
  if (thread == 0) sizes[head] = written;
}

}  // namespace kvcast::kernels
