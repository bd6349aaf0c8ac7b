// Rows gathered in runs: from device memory, and from host memory that the device can address.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

// chunks: 16-byte pieces of a row. Four pieces of each thread are in flight.
KVCAST_KERNEL KVCAST_BOUNDS(256)
    gather_rows(const Vec16* in, const std::uint32_t* starts, Vec16* out, std::size_t total, int run, int chunks) {
  constexpr int kInFlight = 4;
  const std::size_t step = std::size_t{grid_x()} * block_threads();
  const std::size_t run_chunks = static_cast<std::size_t>(run) * static_cast<std::size_t>(chunks);
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < total; i += step * kInFlight) {
    Vec16 v[kInFlight];
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const std::size_t at = i + static_cast<std::size_t>(j) * step;
      if (at < total)
        v[j] = load16(in + std::size_t{starts[at / run_chunks]} * static_cast<std::size_t>(chunks) + at % run_chunks);
    }
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const std::size_t at = i + static_cast<std::size_t>(j) * step;
      if (at < total) store16(out + at, v[j]);
    }
  }
}

}  // namespace kvcast::kernels
