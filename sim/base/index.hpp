#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcast {

// Converts a non-negative position or count to an index of the standard library's containers.
inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace kvcast
