// Flat arrays only: slots and edges come from free lists, and a ring maps ids to slots. Nothing is allocated once the
// arrays have reached the size that the graph needs.
#include "engine/window.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::engine {

bool waits_for_gate(std::span<const OpId> after, OpId lane_before, OpId gate) {
  return lane_before >= gate || std::ranges::any_of(after, [&](OpId id) { return id >= gate; });
}

OpWindow::OpWindow(std::size_t lanes) : lanes_(lanes), ring_(64, kNone) {}

void OpWindow::add(const OpBlock& block, const Op& op, const WorkTime& cost) {
  const std::span<const OpId> after = block.after_of(op);
  const std::span<const MemoryDelta> memory = block.memory_of(op);
  KVCAST_CHECK(op.lane < lanes_.size());
  Lane& lane = lanes_[op.lane];
  KVCAST_CHECK(waits_for_gate(after, lane.last, gate_));
  const std::uint32_t slot = take_slot();
  LiveOp& live = slots_[slot];
  live.id = next_id_;
  live.rank = op.rank >= 0 ? op.rank : next_id_;
  live.tag = op.tag;
  live.lane = op.lane;
  live.cost = &cost;
  live.has_memory = !memory.empty();
  if (live.has_memory) memory_[slot].assign(memory.begin(), memory.end());
  live.waits_for = 0;
  live.first_successor = kNone;
  live.next_on_lane = kNone;
  for (const OpId earlier : after) wait_for(slot, earlier);
  if (lane.tail != kNone) {
    slots_[lane.tail].next_on_lane = slot;
    ++live.waits_for;
  } else {
    lane.head = slot;
  }
  lane.tail = slot;
  lane.last = next_id_;
  remember(slot);
  if (live.waits_for == 0) note_startable(op.lane);
}

std::uint32_t OpWindow::take_slot() {
  if (free_slots_.empty()) {
    KVCAST_CHECK(slots_.size() < kNone);
    slots_.emplace_back();
    memory_.emplace_back();
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void OpWindow::wait_for(std::uint32_t slot, OpId earlier) {
  KVCAST_CHECK(earlier >= 0 && earlier < next_id_);
  if (earlier < first_id_) return;
  const std::uint32_t predecessor = ring_[earlier & (ring_.size() - 1)];
  if (predecessor == kNone) return;
  std::uint32_t edge = free_edge_;
  if (edge == kNone) {
    KVCAST_CHECK(edges_.size() < kNone);
    edge = static_cast<std::uint32_t>(edges_.size());
    edges_.push_back({});
  } else {
    free_edge_ = edges_[edge].next;
  }
  edges_[edge] = {slot, slots_[predecessor].first_successor};
  slots_[predecessor].first_successor = edge;
  ++slots_[slot].waits_for;
}

void OpWindow::remember(std::uint32_t slot) {
  const auto held = static_cast<std::size_t>(next_id_ - first_id_);
  if (held == ring_.size()) {
    std::vector<std::uint32_t> larger(ring_.size() * 2, kNone);
    for (OpId id = first_id_; id < next_id_; ++id) {
      const auto i = static_cast<std::size_t>(id);
      larger[i & (larger.size() - 1)] = ring_[i & (ring_.size() - 1)];
    }
    ring_.swap(larger);
  }
  ring_[next_id_ & (ring_.size() - 1)] = slot;
  ++next_id_;
  ++live_;
}

void OpWindow::note_startable(std::uint16_t lane) {
  startable_.push_back(lane);
  std::push_heap(startable_.begin(), startable_.end(), higher_id());
}

std::uint16_t OpWindow::take_startable() {
  std::pop_heap(startable_.begin(), startable_.end(), higher_id());
  const std::uint16_t lane = startable_.back();
  startable_.pop_back();
  return lane;
}

void OpWindow::settle_one(std::uint32_t slot) {
  if (--slots_[slot].waits_for == 0) note_startable(slots_[slot].lane);
}

void OpWindow::release_successors(const LiveOp& op) {
  for (std::uint32_t edge = op.first_successor; edge != kNone;) {
    settle_one(edges_[edge].waiting);
    const std::uint32_t next = edges_[edge].next;
    edges_[edge].next = free_edge_;
    free_edge_ = edge;
    edge = next;
  }
}

void OpWindow::finish(std::uint16_t lane) {
  Lane& queue = lanes_[lane];
  const std::uint32_t slot = queue.head;
  const LiveOp& op = slots_[slot];
  queue.head = op.next_on_lane;
  if (queue.head == kNone) queue.tail = kNone;
  release_successors(op);
  if (queue.head != kNone) settle_one(queue.head);
  ring_[op.id & (ring_.size() - 1)] = kNone;
  while (first_id_ < next_id_ && ring_[first_id_ & (ring_.size() - 1)] == kNone) ++first_id_;
  free_slots_.push_back(slot);
  --live_;
}

}  // namespace kvcast::engine
