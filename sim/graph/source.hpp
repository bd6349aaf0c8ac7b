// A graph of work that is generated while it runs, block by block.
#pragma once

#include <vector>

#include "graph/op.hpp"

namespace kvcast::graph {

// Blocks of ops in an order in which every op comes after all that it waits for. Ids count up over all blocks from 0.
// The last op of a block is its gate: every op of the next block waits for it, directly or through its own block, so
// that making the next block only once the gate is reached changes nothing. A decode step is a block; its gate is the
// token. An op may wait for ops of its own block and of the kReach blocks before it: consumers that map ids to those of
// another stream remember no more.
class WorkSource {
 public:
  // Most policies wait for results of one or two steps before; those that skip a step for a while wait for older ones.
  static constexpr std::size_t kReach = 128;
  virtual ~WorkSource() = default;
  // Replaces `out` by the next block; false at the end.
  virtual bool next_block(std::vector<Op>& out) = 0;
};

}  // namespace kvcast::graph
