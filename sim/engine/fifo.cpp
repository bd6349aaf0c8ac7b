// One list in ready order, passed over once whenever something was released or someone came. One pass is enough:
// handing out only takes, so whoever was passed over has nothing to gain from a second.
#include "engine/fifo.hpp"

#include <algorithm>

namespace kvcast::engine {

FifoArbiter::FifoArbiter(std::size_t lanes, std::size_t resources) : fifos_(lanes), holders_(resources) {
  waiting_.reserve(lanes);
}

void FifoArbiter::enqueue(const Ready& ready, std::span<const std::uint16_t> fifos) {
  fifos_[ready.lane].assign(fifos.begin(), fifos.end());
  // Newcomers belong at the end, but for ties.
  const auto after = [&](const Ready& other) { return other.instant == ready.instant && other.rank > ready.rank; };
  auto place = waiting_.end();
  while (place != waiting_.begin() && after(*std::prev(place))) --place;
  waiting_.insert(place, ready);
  changed_ = true;
}

void FifoArbiter::hand_out(std::vector<Grant>& out) {
  changed_ = false;
  std::size_t kept = 0;
  for (const Ready& ready : waiting_) {
    const auto& fifos = fifos_[ready.lane];
    if (std::any_of(fifos.begin(), fifos.end(), [&](std::uint16_t r) { return holders_[r].taken; })) {
      waiting_[kept++] = ready;
      continue;
    }
    double since = ready.time;
    for (const std::uint16_t r : fifos) {
      holders_[r].taken = true;
      since = std::max(since, holders_[r].free_since);
    }
    out.push_back({ready.lane, since});
  }
  waiting_.resize(kept);
}

void FifoArbiter::release(std::uint16_t lane, double now) {
  for (const std::uint16_t r : fifos_[lane]) holders_[r] = {false, now};
  fifos_[lane].clear();
  changed_ = true;
}

void FifoArbiter::shift(double back) {
  for (Ready& ready : waiting_) ready.time -= back;
  for (Holder& holder : holders_) holder.free_since -= back;
}

}  // namespace kvcast::engine
