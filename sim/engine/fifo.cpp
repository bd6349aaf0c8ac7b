// One list in ready order, passed over once whenever something was released or someone came. One pass is enough:
// handing out only takes, so whoever was passed over has nothing to gain from a second.
#include "engine/fifo.hpp"

#include <algorithm>

namespace kvcast::engine {

FifoArbiter::FifoArbiter(std::size_t lanes, std::size_t resources) : fifos_(lanes), taken_(resources, 0) {
  waiting_.reserve(lanes);
}

void FifoArbiter::enqueue(std::uint16_t lane, std::int64_t instant, graph::OpId rank,
                          std::span<const std::uint16_t> fifos) {
  fifos_[lane].assign(fifos.begin(), fifos.end());
  const Waiter waiter{instant, rank, lane};
  // Newcomers belong at the end, but for ties.
  auto place = waiting_.end();
  while (place != waiting_.begin() && std::prev(place)->instant == instant && std::prev(place)->rank > rank) --place;
  waiting_.insert(place, waiter);
  changed_ = true;
}

void FifoArbiter::hand_out(std::vector<std::uint16_t>& out) {
  changed_ = false;
  std::size_t kept = 0;
  for (const Waiter& waiter : waiting_) {
    const auto& fifos = fifos_[waiter.lane];
    if (std::any_of(fifos.begin(), fifos.end(), [&](std::uint16_t r) { return taken_[r] != 0; })) {
      waiting_[kept++] = waiter;
      continue;
    }
    for (const std::uint16_t r : fifos) taken_[r] = 1;
    out.push_back(waiter.lane);
  }
  waiting_.resize(kept);
}

void FifoArbiter::release(std::uint16_t lane) {
  for (const std::uint16_t r : fifos_[lane]) taken_[r] = 0;
  fifos_[lane].clear();
  changed_ = true;
}

}  // namespace kvcast::engine
