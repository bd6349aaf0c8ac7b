// A graph of work that is made while it is being run, block by block.
#pragma once

#include <vector>

#include "graph/op.hpp"

namespace kvcast::graph {

// Blocks of ops in an order in which every op stands after all that it waits for. Ids count up over all blocks from 0.
// The last op of a block is its gate: every op of the next block waits for it, directly or through its own block, so
// that making the next block only once the gate is reached changes nothing. A decode step is a block; its gate is the
// token. An op may wait for ops of its own block and of the kReach blocks before it: who turns ids into those of
// another stream remembers no more.
class WorkSource {
 public:
  // Policies wait for what a step or two before has left; more, for those that do without it for a while.
  static constexpr std::size_t kReach = 128;
  virtual ~WorkSource() = default;
  // Replaces `out` by the next block; false at the end.
  virtual bool next_block(std::vector<Op>& out) = 0;
};

}  // namespace kvcast::graph
