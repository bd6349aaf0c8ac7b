// The yardstick of the benchmarks: a bare event loop, a std::priority_queue that pops and pushes the same number of
// events and does nothing else.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace kvcast {

// CPU time of this thread, which other programs on the machine do not add to.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The same number of events through a bare queue as deep as a machine has lanes.
inline double queue_seconds(std::int64_t events, int lanes = 8) {
  const double begin = cpu_seconds();
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> queue;
  const Stream stream(3);
  for (int lane = 0; lane < lanes; ++lane) queue.emplace(stream.uniform(static_cast<std::uint64_t>(lane)), lane);
  for (std::int64_t i = 0; i < events; ++i) {
    const auto [time, lane] = queue.top();
    queue.pop();
    queue.emplace(time + stream.uniform(static_cast<std::uint64_t>(i)), lane);
  }
  benchmark::DoNotOptimize(queue.top().first);
  return cpu_seconds() - begin;
}

}  // namespace kvcast
