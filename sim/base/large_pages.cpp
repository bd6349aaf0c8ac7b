#include "base/large_pages.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace kvcast {

void advise_large_pages(void* begin, std::size_t bytes) {
  constexpr std::uintptr_t kLarge = std::uintptr_t{2} << 20;
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (from + kLarge - 1) / kLarge * kLarge;
  const std::uintptr_t last = (from + bytes) / kLarge * kLarge;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace kvcast
