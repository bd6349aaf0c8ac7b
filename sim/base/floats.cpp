#include "base/floats.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace kvcast {

Floats uninitialised_floats(std::size_t n) {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  auto floats = std::make_unique_for_overwrite<float[]>(n);
  const auto begin = reinterpret_cast<std::uintptr_t>(floats.get());
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (begin + n * sizeof(float)) / kHugePage * kHugePage;
  // Advice: nothing depends on whether it is taken.
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return floats;
}

}  // namespace kvcast
