// Fills arrays on the device with the numbers of harness/input.hpp.
#pragma once

#include "device/device.hpp"

namespace kvcast::kernels {

KVCAST_KERNEL fill_normals(Half* out, std::uint64_t seed, std::size_t n) {
  const std::size_t step = std::size_t{grid_x()} * block_threads();
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < n; i += step) {
    out[i] = to_half(random_normal(seed, i));
  }
}

}  // namespace kvcast::kernels
