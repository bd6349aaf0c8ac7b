// The second step of reading an operation graph: names become indices, and ops are put into an order in which each
// stands after all that it waits for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.hpp"

namespace kvcast::engine {

// Ops in an order that the engine takes, each with a work of its own. An op's tag is its row, its place in the file;
// its rank is its id there.
struct GraphInput {
  System system;
  Block ops;
  std::vector<std::int64_t> ids;  // by row
};

// Throws UserError for anything that the engine would not run.
GraphInput read_graph(std::string_view text, const std::string& file_name);

// What a row waits for: rows, and −1 or the row before it on its lane.
struct Waits {
  std::vector<std::vector<std::uint32_t>> after;
  std::vector<std::int64_t> lane_before;
};

// An order of the rows in which each stands after all that it waits for, rows of a lane in their own order; or, where
// there is none, a cycle: rows each of which waits for the next, the last for the first.
struct Ordering {
  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> cycle;
};
Ordering order_rows(const Waits& waits);

}  // namespace kvcast::engine
