// The only way in which kvcast uses several threads: independent, numbered pieces of work.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/build.hpp"

namespace kvcast {

inline int hardware_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// Calls body(i) for 0 ≤ i < n on up to `threads` threads. Results must not depend on the order. The first exception
// thrown is rethrown after all threads have ended. Threads that the system does not grant are done without.
template <typename Body>
void parallel_for(std::size_t n, int threads, const Body& body) {
  const std::size_t workers = std::min<std::size_t>(n, static_cast<std::size_t>(std::max(1, threads)));
  if (workers <= 1) {
    for (std::size_t i = 0; i < n; ++i) body(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&, &folder = DataFolder::current()] {
    const DataFolder same(folder);
    for (std::size_t i = next++; i < n; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = n;
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    pool.reserve(workers - 1);
    try {
      for (std::size_t w = 1; w < workers; ++w) pool.emplace_back(work);
    } catch (const std::system_error&) {
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace kvcast
