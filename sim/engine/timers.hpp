// Latencies in progress, ordered by their end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvcast::engine {

// At most one latency per lane, which identifies it. The heap contains only lanes, since small elements are cheaper to
// move.
class Timers {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit Timers(std::size_t lanes) : end_(lanes, 0.0) { heap_.reserve(lanes); }

  void add(double end, std::uint16_t lane) {
    end_[lane] = end;
    heap_.push_back(lane);
    std::push_heap(heap_.begin(), heap_.end(), EndsLater{end_});
  }
  double next() const { return heap_.empty() ? kNever : end_[heap_.front()]; }
  std::uint16_t pop() {
    std::pop_heap(heap_.begin(), heap_.end(), EndsLater{end_});
    const std::uint16_t lane = heap_.back();
    heap_.pop_back();
    return lane;
  }
  // The clock's origin has moved on: order among the timers stays.
  void shift(double back) {
    for (const std::uint16_t lane : heap_) end_[lane] -= back;
  }

 private:
  struct EndsLater {
    const std::vector<double>& end;
    bool operator()(std::uint16_t a, std::uint16_t b) const { return end[a] > end[b]; }
  };
  std::vector<double> end_;          // by lane
  std::vector<std::uint16_t> heap_;  // lanes, the earliest end in front
};

}  // namespace kvcast::engine
