// Limit of what is under way at a time: of requests, or of sessions.
#pragma once

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "traffic/request.hpp"

namespace kvcast::traffic {

// Adds seconds to a time; stops at the end of simulated time, half of kNever, so that sums with durations stay below
// it.
inline Picoseconds later(Picoseconds time, double seconds) {
  constexpr Picoseconds kEnd = kNever / 2;
  const double room = to_seconds(kEnd - std::min(time, kEnd));
  return seconds < room ? time + to_picos(seconds) : kEnd;
}

class Slots {
 public:
  explicit Slots(std::int64_t slots) : unlimited_(slots == 0), unused_(slots) {}  // 0: no limit

  // The earliest time from which a slot is free; kNever if all are taken.
  Picoseconds free_from() const {
    if (unlimited_ || unused_ > 0) return 0;
    return free_.empty() ? kNever : free_.top();
  }
  // Takes the slot that is free first; there must be one.
  void take() {
    if (unlimited_) return;
    if (unused_ > 0) {
      --unused_;
    } else {
      free_.pop();
    }
  }
  // Makes a slot free from a time on.
  void give(Picoseconds time) {
    if (!unlimited_) free_.push(time);
  }

 private:
  bool unlimited_;
  std::int64_t unused_;  // slots that nothing has taken yet
  std::priority_queue<Picoseconds, std::vector<Picoseconds>, std::greater<>> free_;
};

}  // namespace kvcast::traffic
