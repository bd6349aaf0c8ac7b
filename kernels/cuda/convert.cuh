// Conversion of page layouts; used by its own benchmark and by recall.
#pragma once

#include "cuda/case.hpp"
#include "device/divisor.hpp"

namespace kvcast::kernels {

struct PageShape {
  int pages, page, kv_heads, dim;
};

// Element offsets of a row: of the NHD pools, and of the HND pool (which: 0 for K, 1 for V).
KVCAST_HD inline std::size_t nhd_row(const PageShape& s, std::size_t page, std::size_t slot, std::size_t head) {
  return ((page * static_cast<std::size_t>(s.page) + slot) * static_cast<std::size_t>(s.kv_heads) + head) *
         static_cast<std::size_t>(s.dim);
}
KVCAST_HD inline std::size_t hnd_row(const PageShape& s, std::size_t page, std::size_t slot, std::size_t head,
                                     std::size_t which) {
  return (((page * static_cast<std::size_t>(s.kv_heads) + head) * 2 + which) * static_cast<std::size_t>(s.page) +
          slot) *
         static_cast<std::size_t>(s.dim);
}

// The 16-byte pieces in the order of HND: contiguous pieces there are whole rows in NHD. Fewer than 2^31 of them.
struct PageWalk {
  PageShape s;
  Divisor chunks, slots, heads;
  std::uint32_t total;
  explicit PageWalk(const PageShape& shape)
      : s(shape),
        chunks(shape.dim / 8),
        slots(shape.page),
        heads(shape.kv_heads),
        total(static_cast<std::uint32_t>(shape.pages * shape.kv_heads * 2 * shape.page * (shape.dim / 8))) {}
};
// Its index in its NHD pool: K's for which 0, V's for 1.
KVCAST_DEVICE std::size_t nhd_piece(const PageWalk& w, std::uint32_t piece, std::uint32_t& which) {
  const std::uint32_t row = w.chunks.quotient(piece), plane = w.slots.quotient(row), item = plane / 2,
                      page = w.heads.quotient(item);
  which = plane % 2;
  return nhd_row(w.s, page, row - plane * w.slots.by, item - page * w.heads.by) +
         std::size_t{piece - row * w.chunks.by} * 8;
}

inline constexpr int kPiecesInFlight = 3;  // per thread; four do not fit into the registers of six blocks

KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(256, kFillingBlocks)
    nhd_to_hnd(PageWalk w, const Half* keys, const Half* values, Half* out) {
  const std::uint32_t step = grid_x() * block_threads();
  for (std::uint32_t i = block_x() * block_threads() + thread_x(); i < w.total; i += step * kPiecesInFlight) {
    Vec16 v[kPiecesInFlight];
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kPiecesInFlight; ++j) {
      std::uint32_t which = 0;
      const std::size_t at = nhd_piece(w, i + j * step < w.total ? i + j * step : i, which);
      v[j] = load16((which == 0 ? keys : values) + at);
    }
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kPiecesInFlight; ++j) {
      if (i + j * step < w.total) store16(out + std::size_t{i + j * step} * 8, v[j]);
    }
  }
}

KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(256, kFillingBlocks)
    hnd_to_nhd(PageWalk w, const Half* in, Half* keys, Half* values) {
  const std::uint32_t step = grid_x() * block_threads();
  for (std::uint32_t i = block_x() * block_threads() + thread_x(); i < w.total; i += step * kPiecesInFlight) {
    Vec16 v[kPiecesInFlight];
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kPiecesInFlight; ++j)
      v[j] = load16(in + std::size_t{i + j * step < w.total ? i + j * step : i} * 8);
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kPiecesInFlight; ++j) {
      if (i + j * step >= w.total) break;
      std::uint32_t which = 0;
      const std::size_t at = nhd_piece(w, i + j * step, which);
      store16((which == 0 ? keys : values) + at, v[j]);
    }
  }
}

inline void check_conversion(State& state, const PageShape& s, const DeviceArray<Half>& keys,
                             const DeviceArray<Half>& values, const DeviceArray<Half>& both) {
  const std::vector<Half> k = keys.host(), v = values.host(), hnd = both.host();
  bool same = true;
  for (std::size_t page = 0; page < as_size(s.pages); ++page) {
    for (std::size_t head = 0; head < as_size(s.kv_heads); ++head) {
      for (std::size_t slot = 0; slot < as_size(s.page); ++slot) {
        for (std::size_t d = 0; d < as_size(s.dim); ++d) {
          const std::size_t from = nhd_row(s, page, slot, head) + d;
          same = same && hnd[hnd_row(s, page, slot, head, 0) + d].bits == k[from].bits;
          same = same && hnd[hnd_row(s, page, slot, head, 1) + d].bits == v[from].bits;
        }
      }
    }
  }
  state.require(same, "every row at its place in both layouts");
}

}  // namespace kvcast::kernels
