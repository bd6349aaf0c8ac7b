// Kernels with which the schemes of the pipeline select, in addition to those that have their own benchmark. `heads`
// are (sequence, KV head) pairs; raw scores are [heads][group][units].
#pragma once

#include "cuda/page_score.cuh"

namespace kvcast::kernels {

// The new token's key joins the bounds of its page: summaries [heads][2][dim] of that page, minima first; keys as
// AppendPlace lays them. One warp for a head.
KVCAST_KERNEL KVCAST_BOUNDS(128) widen_bounds(const Half* keys, std::size_t sequence_stride, std::size_t head_stride,
                                              int heads, int kv_heads, int dim, Half* summaries) {
  const int item = static_cast<int>(block_x() * (block_threads() / 32) + warp_index());
  const int c = static_cast<int>(lane_index()) * 8;
  if (item >= heads || c >= dim) return;
  const Half* key = keys + static_cast<std::size_t>(item / kv_heads) * sequence_stride +
                    static_cast<std::size_t>(item % kv_heads) * head_stride + c;
  Half* low = summaries + static_cast<std::size_t>(item) * 2 * static_cast<std::size_t>(dim) + c;
  float x[8], a[8], b[8];
  unpack8(load16(key), x);
  unpack8(load16(low), a);
  unpack8(load16(low + dim), b);
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) {
    a[i] = fminf(a[i], x[i]);
    b[i] = fmaxf(b[i], x[i]);
  }
  store16(low, {{pack2(a[0], a[1]), pack2(a[2], a[3]), pack2(a[4], a[5]), pack2(a[6], a[7])}});
  store16(low + dim, {{pack2(b[0], b[1]), pack2(b[2], b[3]), pack2(b[4], b[5]), pack2(b[6], b[7])}});
}

// The same for an index by dimension, [heads][maxima, minima][dim][pages]; one block of dim threads for a head.
KVCAST_KERNEL KVCAST_BOUNDS(128) widen_columns(const Half* keys, std::size_t sequence_stride, std::size_t head_stride,
                                               int kv_heads, int pages, int page, Half* index) {
  const std::size_t head = block_x(), d = thread_x(), dim = block_threads(), n = static_cast<std::size_t>(pages);
  const float x = to_float(keys[head / static_cast<std::size_t>(kv_heads) * sequence_stride +
                                head % static_cast<std::size_t>(kv_heads) * head_stride + d]);
  Half* high = index + (head * 2 * dim + d) * n + page;
  Half* low = high + dim * n;
  *high = to_half(fmaxf(to_float(*high), x));
  *low = to_half(fminf(to_float(*low), x));
}

// raw -> out [heads][units]: the largest of the group; block_y is the head.
KVCAST_KERNEL KVCAST_BOUNDS(256) group_most(const float* raw, float* out, int group, int units) {
  const std::size_t n = static_cast<std::size_t>(units), head = block_y();
  const float* rows = raw + head * static_cast<std::size_t>(group) * n;
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < n;
       i += std::size_t{grid_x()} * block_threads()) {
    float most = rows[i];
    for (int g = 1; g < group; ++g) most = fmaxf(most, rows[static_cast<std::size_t>(g) * n + i]);
    out[head * n + i] = most;
  }
}

// ArkVale's scores: one for a page of a sequence, the mean over its query heads of Σ_j max(q_j·min_j, q_j·max_j).
// summaries [pages][sequences · KV heads][2][dim] -> out [sequences][pages]; a block for a (page, sequence), a warp for
// a KV head (in turns).
KVCAST_KERNEL KVCAST_BOUNDS(256)
    score_layer(const Half* query, const Half* summaries, int kv_heads, int group, int dim, float* out) {
  float* red = reinterpret_cast<float*>(shared_memory());
  const int page = static_cast<int>(block_x()), sequence = static_cast<int>(block_y()),
            pages = static_cast<int>(grid_x());
  const int warps = static_cast<int>(block_threads() / 32), c = static_cast<int>(lane_index()) * 8;
  const std::size_t d = static_cast<std::size_t>(dim);
  float sum = 0;
  for (int h = static_cast<int>(warp_index()); h < kv_heads; h += warps) {
    const int head = sequence * kv_heads + h;
    if (c >= dim) continue;
    const std::size_t item =
        static_cast<std::size_t>(page) * (std::size_t{grid_y()} * static_cast<std::size_t>(kv_heads)) +
        static_cast<std::size_t>(head);
    float low[8], high[8];
    unpack8(load16(summaries + item * 2 * d + c), low);
    unpack8(load16(summaries + item * 2 * d + d + c), high);
    for (int g = 0; g < group; ++g) {
      float q[8];
      unpack8(load16(query + static_cast<std::size_t>(head * group + g) * d + c), q);
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) sum += fmaxf(q[i] * low[i], q[i] * high[i]);
    }
  }
  sum = block_join(sum, red, [](float a, float b) { return a + b; });
  if (thread_x() == 0)
    out[static_cast<std::size_t>(sequence) * static_cast<std::size_t>(pages) + static_cast<std::size_t>(page)] =
        sum / static_cast<float>(kv_heads * group);
}

// RocketKV's sums: Σ|q| and Σq over the group, both [heads][dim]; one block of dim threads for a head.
KVCAST_KERNEL KVCAST_BOUNDS(256) sum_magnitudes(const Half* query, int group, float* magnitudes, float* signs) {
  const std::size_t dim = block_threads(), d = thread_x(), head = block_x();
  float sum = 0, most = 0;
  for (int g = 0; g < group; ++g) {
    const float x = to_float(query[(head * static_cast<std::size_t>(group) + static_cast<std::size_t>(g)) * dim + d]);
    sum += x;
    most += fabsf(x);
  }
  magnitudes[head * dim + d] = most;
  signs[head * dim + d] = sum;
}

}  // namespace kvcast::kernels
