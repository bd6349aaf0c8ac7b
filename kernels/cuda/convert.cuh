// Conversion of page layouts; its own benchmark and a part of the recall.
#pragma once

#include "cuda/case.hpp"

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

// Walks the 16-byte pieces in the order of HND: pieces that lie side by side there are whole rows in NHD.
template <typename Move>
KVCAST_DEVICE void each_piece(const PageShape& s, Move move) {
  const std::size_t chunks = static_cast<std::size_t>(s.dim / 8), slots = static_cast<std::size_t>(s.page);
  const std::size_t heads = static_cast<std::size_t>(s.kv_heads);
  const std::size_t total = static_cast<std::size_t>(s.pages) * heads * 2 * slots * chunks;
  const std::size_t step = std::size_t{grid_x()} * block_threads();
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < total; i += step) {
    const std::size_t chunk = i % chunks, slot = i / chunks % slots, which = i / (chunks * slots) % 2;
    const std::size_t head = i / (chunks * slots * 2) % heads, page = i / (chunks * slots * 2 * heads);
    move(nhd_row(s, page, slot, head) + chunk * 8, i * 8, which);
  }
}

KVCAST_KERNEL KVCAST_BOUNDS(256) nhd_to_hnd(PageShape s, const Half* keys, const Half* values, Half* out) {
  each_piece(s, [&](std::size_t nhd, std::size_t hnd, std::size_t which) {
    store16(out + hnd, load16((which == 0 ? keys : values) + nhd));
  });
}

KVCAST_KERNEL KVCAST_BOUNDS(256) hnd_to_nhd(PageShape s, const Half* in, Half* keys, Half* values) {
  each_piece(s, [&](std::size_t nhd, std::size_t hnd, std::size_t which) {
    store16((which == 0 ? keys : values) + nhd, load16(in + hnd));
  });
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
