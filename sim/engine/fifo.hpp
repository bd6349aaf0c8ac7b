// Fifo resources: who holds them, who waits, who is next.
#pragma once

#include <boost/container/small_vector.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "graph/op.hpp"

namespace kvcast::engine {

// Ops, at most one a lane, wait in ready order: by the instant at which they became ready, ties by lower rank. An op
// takes all its fifos together and holds none while it waits; the first in ready order whose fifos are all free goes,
// so that an op may overtake another that waits for a resource which it does not need. Times are picoseconds after the
// clock's origin.
class FifoArbiter {
 public:
  struct Ready {
    std::uint16_t lane;
    double time;
    std::int64_t instant;  // that the time belongs to
    graph::OpId rank;
  };
  struct Grant {
    std::uint16_t lane;
    double since;  // when the op was ready and all its fifos free
  };

  FifoArbiter(std::size_t lanes, std::size_t resources);

  // An op is ready to work and needs these resources (not empty, no resource twice). Instants do not decrease from call
  // to call.
  void enqueue(const Ready& ready, std::span<const std::uint16_t> fifos);
  // Whether hand_out() could find a taker: something has changed since the last time, and someone waits.
  bool due() const { return changed_ && !waiting_.empty(); }
  // Gives free resources to waiting ops; appends them in ready order.
  void hand_out(std::vector<Grant>& out);
  // The op of the lane has finished and gives back what it holds.
  void release(std::uint16_t lane, double now);
  // The clock's origin has moved on.
  void shift(double back);

 private:
  struct Holder {
    bool taken = false;
    double free_since = 0;
  };

  std::vector<boost::container::small_vector<std::uint16_t, 2>> fifos_;  // by lane: what its op waits for or holds
  std::vector<Ready> waiting_;                                           // in ready order
  std::vector<Holder> holders_;                                          // by resource
  bool changed_ = false;
};

}  // namespace kvcast::engine
