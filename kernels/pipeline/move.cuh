// Kernels with which the schemes of the pipeline move keys and values to where attention reads them.
#pragma once

#include "cuda/case.hpp"
#include "device/divisor.hpp"

namespace kvcast::kernels {

// Recalled pages of one KV head: `pages` for each of the sequences, as staged [sequences][pages][K, V][page][dim], go
// to the slots first + (turn + i) % slots of pools [sequences][pool_pages][page][KV heads][dim].
struct PlaceShape {
  int sequences;
  Divisor pages, page, chunks;  // chunks: of 16 bytes in a row of dim halves
  int kv_heads, head;
  int first, turn, slots, pool_pages;
};
KVCAST_KERNEL KVCAST_BOUNDS(256) place_pages(PlaceShape s, const Half* staged, Half* keys, Half* values) {
  const std::uint32_t total = static_cast<std::uint32_t>(s.sequences) * s.pages.by * 2 * s.page.by * s.chunks.by;
  for (std::uint32_t i = block_x() * block_threads() + thread_x(); i < total; i += grid_x() * block_threads()) {
    const std::uint32_t row = s.chunks.quotient(i), plane = s.page.quotient(row), staged_page = plane / 2,
                        sequence = s.pages.quotient(staged_page);
    int slot = s.turn + static_cast<int>(staged_page - sequence * s.pages.by);
    if (slot >= s.slots) slot -= s.slots;
    const std::size_t page =
        sequence * static_cast<std::size_t>(s.pool_pages) + static_cast<std::size_t>(s.first + slot);
    const std::size_t to = ((page * s.page.by + (row - plane * s.page.by)) * static_cast<std::size_t>(s.kv_heads) +
                            static_cast<std::size_t>(s.head)) *
                               s.chunks.by +
                           (i - row * s.chunks.by);
    store16((plane % 2 == 0 ? keys : values) + to * 8, load16(staged + std::size_t{i} * 8));
  }
}

// Missing pages read from page-locked host memory and stored where attention reads them. A page is `parts` parts, of
// one KV head each or of all heads together; a part is [K, V][page][chunks of 16 bytes], one after another in host
// pages [pool][parts]. Launched with blocks (share of a part, missing page, sequence · parts taken + part).
struct PageGather {
  Divisor page, chunks;
  int parts, first_part, parts_taken;
  // Page `id` of a sequence is page (first_page + sequence · pages + id) % pool of host memory.
  int first_page, pages, pool;
  // ids [sequences][parts][chosen]; the i-th one's page goes to slot first_slot + (turn + i) % chosen of `slots`.
  int first_slot, turn, chosen, slots;
};
inline constexpr unsigned kGatherThreads = 256, kGatherInFlight = 4;  // 16-byte loads of a thread
KVCAST_KERNEL KVCAST_BOUNDS(kGatherThreads)
    gather_pages(PageGather s, const Vec16* host, const std::uint32_t* ids, Half* keys, Half* values) {
  const int i = static_cast<int>(block_y()), sequence = static_cast<int>(block_z()) / s.parts_taken,
            part = s.first_part + static_cast<int>(block_z()) % s.parts_taken;
  const std::uint32_t id = ids[(sequence * s.parts + part) * s.chosen + i], total = 2 * s.page.by * s.chunks.by;
  const std::size_t parts = static_cast<std::size_t>(s.parts),
                    from = (static_cast<std::uint32_t>(s.first_page + sequence * s.pages) + id) %
                           static_cast<std::uint32_t>(s.pool);
  const Vec16* in = host + (from * parts + static_cast<std::size_t>(part)) * total;
  const int turned = s.turn + i, slot = s.first_slot + (turned < s.chosen ? turned : turned - s.chosen);
  const std::size_t rows = static_cast<std::size_t>(sequence * s.slots + slot) * s.page.by;
  for (std::uint32_t at = block_x() * kGatherThreads * kGatherInFlight + thread_x(); at < total;
       at += grid_x() * kGatherThreads * kGatherInFlight) {
    Vec16 v[kGatherInFlight];
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kGatherInFlight; ++j) {
      const std::uint32_t c = at + j * kGatherThreads;
      v[j] = load16(in + (c < total ? c : at));
    }
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kGatherInFlight; ++j) {
      const std::uint32_t c = at + j * kGatherThreads;
      if (c >= total) break;
      const std::uint32_t row = s.chunks.quotient(c), plane = row < s.page.by ? 0 : 1;
      const std::size_t to =
          ((rows + (row - plane * s.page.by)) * parts + static_cast<std::size_t>(part)) * s.chunks.by +
          (c - row * s.chunks.by);
      store16((plane == 0 ? keys : values) + to * 8, v[j]);
    }
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
