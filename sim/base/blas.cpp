// OpenBLAS 0.3: blas_memory_alloc and BUFFER_SIZE of driver/others/memory.c and common_x86_64.h.
#include "base/blas.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/failure.hpp"
#include "base/parallel.hpp"

extern "C" {
void openblas_set_num_threads(int n);
void* blas_memory_alloc(int unused);
void blas_memory_free(void* buffer);
}

namespace kvcast {
namespace {

constexpr std::size_t kBuffer = std::size_t{128} << 20;

bool has_room(std::size_t bytes) {
  void* const there =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (there == MAP_FAILED) return false;
  ::munmap(there, bytes);
  return true;
}

class Buffers {
 public:
  void take() {
    if (try_take()) return;
    std::unique_lock lock(mutex_);
    if (!mapped_) map_all();
    ++waiting_;
    returned_.wait(lock, [this] { return try_take(); });
    --waiting_;
  }

  void give_back() {
    ++free_;
    if (waiting_ == 0) return;
    const std::lock_guard lock(mutex_);
    returned_.notify_one();
  }

 private:
  bool try_take() {
    int there = free_;
    while (there > 0 && !free_.compare_exchange_weak(there, there - 1)) {
    }
    return there > 0;
  }

  // Maps a buffer for each core, and more than one only if they leave most of the memory to others.
  void map_all() {
    constexpr std::size_t kShare = 4;
    openblas_set_num_threads(1);  // kvcast spreads work over threads itself
    std::vector<void*> made;
    while (static_cast<int>(made.size()) < hardware_threads() && has_room(made.empty() ? kBuffer : kShare * kBuffer)) {
      made.push_back(blas_memory_alloc(0));
    }
    if (made.empty()) throw NoMemory(kBuffer, "a matrix product");
    for (void* const buffer : made) blas_memory_free(buffer);
    mapped_ = true;
    free_ = static_cast<int>(made.size());
  }

  std::mutex mutex_;
  std::condition_variable returned_;
  std::atomic<int> free_{0}, waiting_{0};
  bool mapped_ = false;  // under the mutex
};

// Shared by the whole program, as OpenBLAS's buffers are.
Buffers& buffers() {
  static Buffers all;
  return all;
}

}  // namespace

BlasTurn::BlasTurn() { buffers().take(); }
BlasTurn::~BlasTurn() { buffers().give_back(); }

bool memory_is_limited() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  int policy = 0;
  constexpr int kNeverOvercommit = 2;  // proc(5)
  std::ifstream("/proc/sys/vm/overcommit_memory") >> policy;
  return policy == kNeverOvercommit;
}

}  // namespace kvcast
