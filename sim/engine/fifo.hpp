// Arbitration of fifo resources: their holders and the queues of ops that wait for them.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/op.hpp"

namespace kvcast::engine {

// Ops, at most one per lane, wait in ready order: by the instant at which they became ready, ties by lower rank, then
// by the order of enqueue(). An op takes all its fifos together and holds none while it waits; the first in ready order
// whose fifos are all free is granted, so that an op may overtake another that waits for a resource which it does not
// need. Times are picoseconds after the clock's origin.
class FifoArbiter {
 public:
  struct Ready {
    std::uint16_t lane;
    double time;
    std::int64_t instant;  // instant that the time belongs to
    graph::OpId rank;
  };
  struct Grant {
    std::uint16_t lane;
    double since;  // when the op was ready and all its fifos free
  };

  FifoArbiter(std::size_t lanes, std::size_t resources) : waiting_(lanes), fifos_(resources) {}

  // An op is ready to work and needs these resources (not empty, no resource twice; they must stay in place until the
  // op is granted). Instants do not decrease from call to call.
  void enqueue(const Ready& ready, std::span<const std::uint16_t> needs);
  // Returns whether hand_out() has a candidate.
  bool due() const { return !open_.empty(); }
  // Gives free resources to waiting ops; appends them in ready order.
  void hand_out(std::vector<Grant>& out);
  // An op has finished and gives back the resources that it holds.
  void release(std::span<const std::uint16_t> held, double now);
  // The clock's origin has moved on.
  void shift(double back);

 private:
  // Ready order.
  struct Turn {
    std::int64_t instant;
    graph::OpId rank;
    std::int64_t sequence;  // number of the call of enqueue()
    auto operator<=>(const Turn&) const = default;
  };
  struct Waiting {
    Turn turn;
    double time, moved;  // time at which it became ready; value of moved_ at that time
    std::span<const std::uint16_t> needs;
  };
  struct Fifo {
    bool taken = false;
    double free_since = 0;
    std::vector<std::uint16_t> queue;  // heap of lanes: the first in ready order in front
  };
  // A free fifo and the turn of the first op in its queue.
  struct Candidate {
    Turn turn;
    std::uint16_t fifo;
    bool operator<(const Candidate& other) const { return turn > other.turn; }  // heaps have the largest in front
  };

  std::span<const std::uint16_t>::iterator find_taken(std::span<const std::uint16_t> needs) const;
  auto later_turn() {
    return [this](std::uint16_t a, std::uint16_t b) { return waiting_[a].turn > waiting_[b].turn; };
  }
  void park(std::uint16_t fifo, std::uint16_t lane);
  void grant(std::uint16_t lane, std::vector<Grant>& out);
  void add_candidate(std::uint16_t fifo);

  std::vector<Waiting> waiting_;       // by lane
  std::vector<Fifo> fifos_;            // by resource
  std::vector<std::uint16_t> open_;    // the free fifos with a queue
  std::vector<Candidate> candidates_;  // heap; scratch
  std::int64_t next_sequence_ = 0;
  double moved_ = 0;  // sum of all shifts
};

}  // namespace kvcast::engine
