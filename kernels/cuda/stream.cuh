// The reading stream of hbm_stream.cu, which other benchmarks run concurrently with copies.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr int kStreamInFlight = 4;  // independent accesses of a thread

// Reads are summed so that the compiler cannot remove them; each warp stores its sum.
KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(256, kFillingBlocks)
    stream_read(const Vec16* in, std::size_t n, std::uint32_t* sum) {
  const std::size_t step = std::size_t{grid_x()} * block_threads();
  std::uint32_t total = 0;
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < n; i += step * kStreamInFlight) {
    Vec16 v[kStreamInFlight];
    KVCAST_UNROLL
    for (int j = 0; j < kStreamInFlight; ++j) {
      const std::size_t at = i + static_cast<std::size_t>(j) * step;
      v[j] = at < n ? load16(in + at) : Vec16{{0, 0, 0, 0}};
    }
    KVCAST_UNROLL
    for (int j = 0; j < kStreamInFlight; ++j) total += v[j].w[0] + v[j].w[1] + v[j].w[2] + v[j].w[3];
  }
  KVCAST_UNROLL
  for (unsigned m = 16; m > 0; m >>= 1) total += warp_from(total, lane_index() ^ m);
  if (lane_index() == 0) sum[block_x() * (block_threads() / 32) + warp_index()] = total;
}

}  // namespace kvcast::kernels
