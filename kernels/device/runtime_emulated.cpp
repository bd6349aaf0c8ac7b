#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <new>

#include "device/fill.hpp"
#include "device/runtime.hpp"

namespace kvcast::kernels {

namespace {

struct Mappings {
  std::mutex mutex;
  std::map<void*, std::pair<void*, std::size_t>> of;
};
Mappings& mappings() {
  static Mappings* all = new Mappings;  // arrays of static objects are destroyed later
  return *all;
}

}  // namespace

// An array ends where its last page ends, or 15 bytes before: accesses beyond it fault.
void* device_allocate(std::size_t bytes) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), rounded = (bytes + 15) / 16 * 16;
  const std::size_t size = (rounded + page - 1) / page * page;
  void* const base = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  unsigned char* const end = static_cast<unsigned char*>(base) + size;
  mprotect(end, page, PROT_NONE);
  void* const p = end - rounded;
  std::memset(p, 0xFF, rounded);
  const std::lock_guard<std::mutex> lock(mappings().mutex);
  mappings().of[p] = {base, size + page};
  return p;
}

void device_free(void* p) noexcept {
  const std::lock_guard<std::mutex> lock(mappings().mutex);
  const auto at = mappings().of.find(p);
  munmap(at->second.first, at->second.second);
  mappings().of.erase(at);
}

DeviceArray<Half> half_normals(std::uint64_t seed, std::size_t n) {
  DeviceArray<Half> out(n);
  for (std::size_t i = 0; i < n; ++i) out.data()[i] = half_of(random_normal(seed, i));
  return out;
}

void run_and_wait(const std::function<void(Queue)>& call) { call(Queue{}); }

void measure_device(State& state, const std::function<void(Queue)>&, const DeviceTiming&) {
  state.skip("the emulator has no sense of time");
}

}  // namespace kvcast::kernels
