// The kernel of key_rebuild.cu, which describes it.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kRebuildDim = 128;
inline constexpr int kRebuildPad = 8;  // halves: rows then start four banks apart

struct RebuildShape {
  int kv_heads, selected, rank;
  int context;    // rows of U of a sequence; a row's position is its number modulo this
  int rows_out;   // rows of the output per head, the first `selected` of which are written
  bool gathered;  // u holds the selected rows themselves, [kv_heads][selected][rank]
};

// u [context][rank], factor [kv_heads][dim][rank], ids [kv_heads][selected], cosines and sines [context][dim / 2]
// -> keys [kv_heads][rows_out][dim].
KVCAST_KERNEL KVCAST_BOUNDS(128)
    rebuild_keys(RebuildShape s, const Half* u, const Half* factor, const std::uint32_t* ids, const float* cosines,
                 const float* sines, Half* keys) {
  Half* shared = reinterpret_cast<Half*>(shared_memory());  // [dim][rank + pad]
  const int head = static_cast<int>(block_y()), lane = static_cast<int>(lane_index()), pitch = s.rank + kRebuildPad;
  for (int i = static_cast<int>(thread_x()); i < kRebuildDim * s.rank / 8; i += 128) {
    const int row = i / (s.rank / 8), chunk = i % (s.rank / 8);
    store16_shared(
        shared + row * pitch + chunk * 8,
        load16(factor + static_cast<std::size_t>(head * kRebuildDim + row) * static_cast<std::size_t>(s.rank) +
               static_cast<std::size_t>(chunk) * 8));
  }
  block_sync();
  const int first = static_cast<int>(block_x() * 4 + warp_index()) * 16;
  if (first >= s.selected) return;
  std::uint32_t token[2], row[2];
  KVCAST_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int i = first + lane / 4 + 8 * h;
    const int at = head * s.selected + (i < s.selected ? i : s.selected - 1);
    token[h] = ids[at] % static_cast<std::uint32_t>(s.context);
    row[h] = s.gathered ? static_cast<std::uint32_t>(at) : ids[at];
  }
  float out[kRebuildDim / 8][4];
  KVCAST_UNROLL
  for (int i = 0; i < kRebuildDim / 2; ++i) out[i / 4][i % 4] = 0;
  for (int k = lane % 4 * 8; k < s.rank + lane % 4 * 8; k += 32) {
    // The last 32 may be 16: the lanes beyond add zeros.
    const bool inside = k < s.rank;
    Vec16 a[2];
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h)
      a[h] = inside ? load16(u + std::size_t{row[h]} * static_cast<std::size_t>(s.rank) + k) : Vec16{{0, 0, 0, 0}};
    KVCAST_UNROLL
    for (int n = 0; n < kRebuildDim / 8; ++n)
      multiply_add_pair(out[n], a, inside ? load16(shared + (n * 8 + lane / 4) * pitch + k) : Vec16{{0, 0, 0, 0}});
  }
  KVCAST_UNROLL
  for (int n = 0; n < kRebuildDim / 16; ++n) {
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int i = first + lane / 4 + 8 * h, d = n * 8 + lane % 4 * 2;
      if (i >= s.selected) continue;
      const std::size_t at = std::size_t{token[h]} * (kRebuildDim / 2) + static_cast<std::size_t>(d);
      const float* x = &out[n][2 * h];
      const float* y = &out[n + kRebuildDim / 16][2 * h];
      std::uint32_t* to = reinterpret_cast<std::uint32_t*>(
          keys +
          (static_cast<std::size_t>(head) * static_cast<std::size_t>(s.rows_out) + static_cast<std::size_t>(i)) *
              kRebuildDim +
          d);
      to[0] = pack2(x[0] * cosines[at] - y[0] * sines[at], x[1] * cosines[at + 1] - y[1] * sines[at + 1]);
      to[kRebuildDim / 4] = pack2(y[0] * cosines[at] + x[0] * sines[at], y[1] * cosines[at + 1] + x[1] * sines[at + 1]);
    }
  }
}

}  // namespace kvcast::kernels
