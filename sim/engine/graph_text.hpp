// The first step of reading an operation graph: JSON text to rows, with names and locations as written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/strict_json.hpp"
#include "engine/engine.hpp"

namespace kvcast::engine {

// Every distinct string once.
class Names {
 public:
  std::uint32_t id(const std::string& name);
  const std::string& text(std::uint32_t id) const { return texts_[id]; }

 private:
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::string> texts_;
};

struct NamedRow {  // a lane or a resource
  std::uint32_t name = 0;
  TextOffset at = 0;
  double rate = 0;
  Sharing sharing = Sharing::kFair;
};

struct DemandRow {
  std::uint32_t resource = 0;  // name
  double amount = 0;
  TextOffset at = 0;
};

struct AfterRow {
  std::int64_t id = 0;
  TextOffset at = 0;
};

// Demands and predecessors of an op are in the graph's flat lists, from the op's first up to the next op's first.
struct OpRow {
  std::int64_t id = 0;
  TextOffset at = 0;
  std::uint32_t lane = 0;  // name
  TextOffset lane_at = 0;
  double latency_s = 0;
  std::size_t first_demand = 0, first_after = 0;
};

struct GraphText {
  Names names;
  std::vector<NamedRow> resources, lanes;
  std::vector<OpRow> ops;
  std::vector<DemandRow> demands;
  std::vector<AfterRow> after;

  std::size_t end_demand(std::size_t op) const {
    return op + 1 < ops.size() ? ops[op + 1].first_demand : demands.size();
  }
  std::size_t end_after(std::size_t op) const { return op + 1 < ops.size() ? ops[op + 1].first_after : after.size(); }
};

// Throws UserError for malformed JSON, unknown, duplicate or missing keys, values of a wrong type or sign. Names are
// not looked up yet.
GraphText parse_graph_text(std::string_view text, const std::string& file_name);

}  // namespace kvcast::engine
