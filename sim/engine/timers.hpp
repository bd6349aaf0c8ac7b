// Latencies in progress: what ends next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvcast::engine {

class Timers {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void add(double time, std::uint16_t lane) {
    heap_.push_back({time, lane});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  double next() const { return heap_.empty() ? kNever : heap_.front().time; }
  std::uint16_t pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const std::uint16_t lane = heap_.back().lane;
    heap_.pop_back();
    return lane;
  }
  // The clock's origin has moved on: order among the timers stays.
  void shift(double back) {
    for (Timer& t : heap_) t.time -= back;
  }

 private:
  struct Timer {
    double time;
    std::uint16_t lane;
  };
  static bool later(const Timer& a, const Timer& b) { return a.time > b.time; }
  std::vector<Timer> heap_;
};

}  // namespace kvcast::engine
