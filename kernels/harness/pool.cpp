#include "harness/pool.hpp"

#include <pthread.h>
#include <sched.h>

namespace kvcast::kernels {

namespace {

// The i-th CPU that this process may use; an unpinned thread migrates and loses its caches.
void pin(pthread_t thread, int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
    return;
  }
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Pool::Pool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(i); });
    pin(workers_.back().native_handle(), i);
  }
}

Pool::~Pool() {
  stop_ = true;
  ++round_;
  for (std::thread& worker : workers_) worker.join();
}

void Pool::work(int index) {
  unsigned seen = 0;
  while (true) {
    while (round_.load(std::memory_order_acquire) == seen) relax();
    seen = round_.load(std::memory_order_acquire);
    if (stop_) return;
    (*task_)(index);
    left_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void Pool::run(const std::function<void(int)>& task) {
  task_ = &task;
  left_.store(threads_ - 1, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  task(0);
  while (left_.load(std::memory_order_acquire) > 0) relax();
}

void Pool::split(std::size_t items, const std::function<void(std::size_t, std::size_t)>& task) {
  const std::size_t n = static_cast<std::size_t>(threads_);
  run([&](int i) {
    const std::size_t t = static_cast<std::size_t>(i);
    task(items * t / n, items * (t + 1) / n);
  });
}

}  // namespace kvcast::kernels
