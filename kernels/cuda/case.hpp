// Shared by GPU benchmarks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "device/runtime.hpp"

namespace kvcast::kernels {

inline std::size_t as_size(std::int64_t n) { return static_cast<std::size_t>(n); }
inline int as_int(const State& state, const char* axis) {
  const std::int64_t value = state.integer(axis);
  if (value > std::numeric_limits<int>::max())
    throw UsageError(std::string("axis '") + axis + "' takes numbers below 2^31, found '" + state.word(axis) + "'");
  return static_cast<int>(value);
}
inline unsigned as_unsigned(std::int64_t n) { return static_cast<unsigned>(n); }

// Skips, with a reason, if device memory has no room. Checks are small.
inline bool too_large(State& state, double bytes) {
  if (state.checking() || state.machine().device_bytes <= 0 || bytes < 0.8 * state.machine().device_bytes) return false;
  state.skip("the data does not fit in device memory");
  return true;
}

inline unsigned blocks_for(std::size_t items, std::size_t each) {
  return static_cast<unsigned>(std::max<std::size_t>(1, (items + each - 1) / each));
}

// For kernels that count their pieces in 31 bits; reports if there are more.
inline bool too_many_pieces(State& state, std::size_t pieces) {
  if (pieces < std::size_t{1} << 31) return false;
  state.skip("2^31 pieces of 16 bytes or more");
  return true;
}

// Blocks that fill the device once, for kernels whose threads stride over the data. Six blocks of 256 threads fit on a
// multiprocessor of every architecture, if they are compiled for it; more would come as a second, partial wave.
inline constexpr unsigned kFillingBlocks = 6;
inline unsigned filling_blocks(const State& state) {
  return kFillingBlocks * static_cast<unsigned>(std::max(state.machine().sm_count, 2));
}

}  // namespace kvcast::kernels
