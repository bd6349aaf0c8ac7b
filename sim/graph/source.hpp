// A graph of work that is made while it is being run, block by block.
#pragma once

#include <vector>

#include "graph/op.hpp"

namespace kvcast::graph {

// Blocks of ops in an order in which every op stands after all that it waits for. Ids count up over all blocks from 0.
// The last op of a block is its gate: every op of the next block waits for it, directly or through its own block, so
// that making the next block only once the gate is reached changes nothing. A decode step is a block; its gate is the
// token.
class WorkSource {
 public:
  virtual ~WorkSource() = default;
  // Replaces `out` by the next block; false at the end.
  virtual bool next_block(std::vector<Op>& out) = 0;
};

}  // namespace kvcast::graph
