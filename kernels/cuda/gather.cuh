// Rows gathered in runs: from device memory, and from host memory that the device can address.
#pragma once

#include "cuda/case.hpp"
#include "device/divisor.hpp"

namespace kvcast::kernels {

// run: 16-byte pieces of a run; below 2^31 pieces in all. starts: of each run, in rows of `chunks` pieces. Four pieces
// of each thread are in flight.
KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(256, kFillingBlocks)
    gather_rows(const Vec16* in, const std::uint32_t* starts, Vec16* out, std::uint32_t total, Divisor run,
                int chunks) {
  constexpr std::uint32_t kInFlight = 4;
  const std::uint32_t step = grid_x() * block_threads();
  for (std::uint32_t i = block_x() * block_threads() + thread_x(); i < total; i += step * kInFlight) {
    Vec16 v[kInFlight];
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kInFlight; ++j) {
      const std::uint32_t at = i + j * step < total ? i + j * step : i, number = run.quotient(at);
      v[j] = load16(in + std::size_t{starts[number]} * static_cast<std::size_t>(chunks) + (at - number * run.by));
    }
    KVCAST_UNROLL
    for (std::uint32_t j = 0; j < kInFlight; ++j) {
      if (i + j * step < total) store16(out + (i + j * step), v[j]);
    }
  }
}

}  // namespace kvcast::kernels
