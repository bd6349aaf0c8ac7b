// Kernels with which the schemes of the pipeline move keys and values to where attention reads them.
#pragma once

#include "cuda/case.hpp"
#include "device/divisor.hpp"

namespace kvcast::kernels {

// Recalled pages of one KV head: `pages` for each of the sequences, as staged [sequences][pages][K, V][page][dim], go
// to the slots first + (turn + i) % slots of pools [sequences][pool_pages][page][KV heads][dim].
struct PlaceShape {
  int sequences, pages, page, kv_heads, dim, head;
  int first, turn, slots, pool_pages;
};
KVCAST_KERNEL KVCAST_BOUNDS(256) place_pages(PlaceShape s, const Half* staged, Half* keys, Half* values) {
  const int chunks = s.dim / 8, total = s.sequences * s.pages * 2 * s.page * chunks;
  for (int i = static_cast<int>(block_x() * block_threads() + thread_x()); i < total;
       i += static_cast<int>(grid_x() * block_threads())) {
    const int chunk = i % chunks, row = i / chunks % s.page, which = i / (chunks * s.page) % 2;
    const int p = i / (chunks * s.page * 2) % s.pages, b = i / (chunks * s.page * 2 * s.pages);
    const std::size_t slot = static_cast<std::size_t>(b * s.pool_pages + s.first + (s.turn + p) % s.slots);
    const std::size_t to = ((slot * static_cast<std::size_t>(s.page) + static_cast<std::size_t>(row)) *
                                static_cast<std::size_t>(s.kv_heads) +
                            static_cast<std::size_t>(s.head)) *
                               static_cast<std::size_t>(s.dim) +
                           static_cast<std::size_t>(chunk) * 8;
    store16((which == 0 ? keys : values) + to, load16(staged + static_cast<std::size_t>(i) * 8));
  }
}

// Run i of `runs`, each of chunks.by 16-byte pieces: from run from[i] of `in` to run to[i] of `out`.
KVCAST_KERNEL KVCAST_BOUNDS(256) move_runs(const Vec16* in, const std::uint32_t* from, Vec16* out,
                                           const std::uint32_t* to, int runs, Divisor chunks) {
  constexpr std::uint32_t kInFlight = 4;
  const std::uint32_t total = static_cast<std::uint32_t>(runs) * chunks.by, step = grid_x() * block_threads();
  for (std::uint32_t i = block_x() * block_threads() + thread_x(); i < total; i += step * kInFlight) {
    Vec16 v[kInFlight];
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kInFlight; ++j) {
      const std::uint32_t at = i + j * step < total ? i + j * step : i, run = chunks.quotient(at);
      v[j] = load16(in + std::size_t{from[run]} * chunks.by + (at - run * chunks.by));
    }
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kInFlight; ++j) {
      const std::uint32_t at = i + j * step;
      if (at >= total) break;
      const std::uint32_t run = chunks.quotient(at);
      store16(out + std::size_t{to[run]} * chunks.by + (at - run * chunks.by), v[j]);
    }
  }
}

// Two attentions over different tokens, each with its log-sum-exp, joined: rows of dim threads.
KVCAST_KERNEL KVCAST_BOUNDS(256)
    join_two(const Half* a, const float* lse_a, const Half* b, const float* lse_b, Half* out) {
  const std::size_t row = block_x(), at = row * block_threads() + thread_x();
  const float x = lse_a[row], y = lse_b[row], most = fmaxf(x, y);
  const float p = exp2_fast((x - most) * 1.44269504f), q = exp2_fast((y - most) * 1.44269504f);
  out[at] = to_half((p * to_float(a[at]) + q * to_float(b[at])) / (p + q));
}

}  // namespace kvcast::kernels
