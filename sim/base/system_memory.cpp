#include "base/system_memory.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <climits>
#include <cstdint>

namespace kvcast {

void advise_large_pages(void* begin, std::size_t bytes) {
  constexpr std::uintptr_t kLarge = std::uintptr_t{2} << 20;
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (from + kLarge - 1) / kLarge * kLarge;
  const std::uintptr_t last = (from + bytes) / kLarge * kLarge;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

// Replays and simulations allocate and free megabytes thousands of times. Kept in one heap they are reused at once;
// returned to the system each page would be cleared again, which takes an eighth of a long context's replay and a
// third of an experiment of FreeKV. Threads that share one heap wait for its lock: a sweep of small experiments took
// half as long again.
void keep_freed_memory() {
  ::mallopt(M_ARENA_MAX, 8);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest allowed value
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

}  // namespace kvcast
