// The live ops of a run, from their arrival to their finish, and the dependencies between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.hpp"
#include "engine/works.hpp"

namespace kvcast::engine {

// An op that has arrived and not finished. Ids and ranks as in Op, times in picoseconds.
struct LiveOp {
  OpId id = 0, rank = 0;
  std::uint64_t tag = 0;
  Picoseconds start = 0, work_start = 0;
  std::uint32_t waits_for = 0;        // unfinished ops, the one before it on its lane included
  std::uint32_t first_successor = 0;  // edge, see OpWindow
  std::uint32_t next_on_lane = 0;     // slot
  const WorkTime* cost = nullptr;
  std::uint16_t lane = 0;
  bool has_memory = false;
};

// Returns whether an op of a block after `gate` waits for it: it names the gate, or an op of its own block (ids above
// the gate's, all of which wait for it), or follows such an op on its lane (lane_before: the last op that arrived there
// earlier, −1 if none). Any other op could have run before the gate and must not come after it.
bool waits_for_gate(std::span<const OpId> after, OpId lane_before, OpId gate);

// Ops that have arrived and not finished, in slots that are reused. A finished op leaves 4 bytes behind until all
// before it have finished too.
class OpWindow {
 public:
  explicit OpWindow(std::size_t lanes);

  // Adds the next op, one of the block; its id is the number of ops before it. The cost must outlive the op.
  void add(const OpBlock& block, const Op& op, const WorkTime& cost);
  // New ops belong to the block after this op from now on; −1: to the first block.
  void set_gate(OpId gate) { gate_ = gate; }

  OpId arrived() const { return next_id_; }
  std::size_t live() const { return live_; }
  // The first unfinished op of a lane: the only one there that may have started.
  LiveOp& on_lane(std::uint16_t lane) { return slots_[lanes_[lane].head]; }
  // The memory deltas of that op.
  std::span<const MemoryDelta> memory_on(std::uint16_t lane) const { return memory_[lanes_[lane].head]; }
  // Returns whether there are ops that have not been taken and wait for nothing: their lane is free and all of their
  // predecessors have finished.
  bool has_startable() const { return !startable_.empty(); }
  // Takes the startable op with the lowest id; returns its lane.
  std::uint16_t take_startable();
  // Removes the first op of the lane.
  void finish(std::uint16_t lane);

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Lane {
    std::uint32_t head = kNone, tail = kNone;  // slots
    OpId last = -1;                            // the last op that arrived
  };
  // An op that waits; the edges of one predecessor form a list.
  struct Edge {
    std::uint32_t waiting, next;
  };

  std::uint32_t take_slot();
  void wait_for(std::uint32_t slot, OpId earlier);
  void remember(std::uint32_t slot);
  void release_successors(const LiveOp& op);
  void settle_one(std::uint32_t slot);
  void note_startable(std::uint16_t lane);
  auto higher_id() {
    return [this](std::uint16_t a, std::uint16_t b) { return on_lane(a).id > on_lane(b).id; };
  }

  std::vector<LiveOp> slots_;
  std::vector<std::vector<MemoryDelta>> memory_;  // by slot
  std::vector<std::uint32_t> free_slots_;
  std::vector<Edge> edges_;
  std::uint32_t free_edge_ = kNone;
  std::vector<Lane> lanes_;
  std::vector<std::uint16_t> startable_;  // heap of lanes: the one with the lowest id in front
  // Slots of the ids first_id_ … next_id_ − 1, kNone for the finished; a ring of a power of two.
  std::vector<std::uint32_t> ring_;
  OpId first_id_ = 0, next_id_ = 0, gate_ = -1;
  std::size_t live_ = 0;
};

}  // namespace kvcast::engine
