// A waiting op is in the queue of one of the fifos that it needs: of a taken one, if there is one. As long as that fifo
// is taken the op cannot start and is not considered. So a release costs a scan of the queue of the fifo up to the
// first op that takes it, however many ops wait. Ops in the queues of several free fifos are considered in ready order;
// one pass is enough, because granting only takes.
#include "engine/fifo.hpp"

#include <algorithm>

namespace kvcast::engine {

std::span<const std::uint16_t>::iterator FifoArbiter::find_taken(std::span<const std::uint16_t> needs) const {
  return std::ranges::find_if(needs, [&](std::uint16_t f) { return fifos_[f].taken; });
}

void FifoArbiter::park(std::uint16_t fifo, std::uint16_t lane) {
  std::vector<std::uint16_t>& queue = fifos_[fifo].queue;
  if (queue.empty() && !fifos_[fifo].taken) open_.push_back(fifo);
  queue.push_back(lane);
  std::push_heap(queue.begin(), queue.end(), later_turn());
}

void FifoArbiter::enqueue(const Ready& ready, std::span<const std::uint16_t> needs) {
  const auto taken = find_taken(needs);
  waiting_[ready.lane] = {{ready.instant, ready.rank, next_sequence_++}, ready.time, moved_, needs};
  park(taken == needs.end() ? needs.front() : *taken, ready.lane);
}

void FifoArbiter::release(std::span<const std::uint16_t> held, double now) {
  for (const std::uint16_t f : held) {
    fifos_[f].taken = false;
    fifos_[f].free_since = now;
    if (!fifos_[f].queue.empty()) open_.push_back(f);
  }
}

void FifoArbiter::grant(std::uint16_t lane, std::vector<Grant>& out) {
  const Waiting& op = waiting_[lane];
  double since = op.time - (moved_ - op.moved);
  for (const std::uint16_t f : op.needs) {
    fifos_[f].taken = true;
    since = std::max(since, fifos_[f].free_since);
  }
  out.push_back({lane, since});
}

void FifoArbiter::add_candidate(std::uint16_t fifo) {
  candidates_.push_back({waiting_[fifos_[fifo].queue.front()].turn, fifo});
  std::push_heap(candidates_.begin(), candidates_.end());
}

void FifoArbiter::hand_out(std::vector<Grant>& out) {
  for (const std::uint16_t f : open_) add_candidate(f);
  open_.clear();
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    const std::uint16_t f = candidates_.back().fifo;
    candidates_.pop_back();
    if (fifos_[f].taken) continue;  // by an op from another queue
    std::vector<std::uint16_t>& queue = fifos_[f].queue;
    std::pop_heap(queue.begin(), queue.end(), later_turn());
    const std::uint16_t lane = queue.back();
    queue.pop_back();
    const std::span<const std::uint16_t> needs = waiting_[lane].needs;
    if (const auto taken = find_taken(needs); taken != needs.end()) {
      park(*taken, lane);
    } else {
      grant(lane, out);
    }
    if (!fifos_[f].taken && !queue.empty()) add_candidate(f);
  }
}

void FifoArbiter::shift(double back) {
  moved_ += back;
  for (Fifo& fifo : fifos_) fifo.free_since -= back;
}

}  // namespace kvcast::engine
