// The second step of reading an operation graph: names become indices, and ops are sorted so that each comes after all
// that it waits for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.hpp"

namespace kvcast::engine {

// Ops in an order that the engine accepts, each with a work of its own. An op's tag is its row, that is its index in
// the file; its rank is its id there.
struct GraphInput {
  System system;
  OpBlock ops;
  std::vector<std::int64_t> ids;  // by row
};

// Throws UserError for anything that the engine would reject.
GraphInput read_graph(std::string_view text, const std::string& file_name);

// Predecessors of a row: rows, and −1 or the row before it on its lane.
struct Predecessors {
  std::vector<std::vector<std::uint32_t>> after;
  std::vector<std::int64_t> lane_before;
};

// A topological order of the rows, those of a lane in their own order; if there is none, one cycle.
struct Ordering {
  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> cycle;
};
Ordering order_rows(const Predecessors& waits);

}  // namespace kvcast::engine
