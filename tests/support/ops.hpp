// Queries on a list of ops.
#pragma once

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "policy/recorder.hpp"

namespace kvcast::tests {

// Ids of the ops with this label, in order.
inline std::vector<graph::OpId> labelled(const std::vector<graph::Op>& ops, const std::string& label) {
  std::vector<graph::OpId> out;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].label == label) out.push_back(static_cast<graph::OpId>(i));
  }
  return out;
}

inline const graph::Op& only(const std::vector<graph::Op>& ops, const std::string& label) {
  const auto ids = labelled(ops, label);
  INFO("op \"" << label << "\"");
  REQUIRE(ids.size() == 1);
  return ops[static_cast<std::size_t>(ids[0])];
}

// Returns whether `later` cannot start before `earlier` has finished: by its dependencies, or by the order of its lane.
inline bool waits_for(const std::vector<graph::Op>& ops, graph::OpId later, graph::OpId earlier) {
  std::set<graph::OpId> seen;
  std::vector<graph::OpId> open = {later};
  while (!open.empty()) {
    const graph::OpId id = open.back();
    open.pop_back();
    if (id == earlier) return true;
    if (!seen.insert(id).second) continue;
    const graph::Op& op = ops[static_cast<std::size_t>(id)];
    for (const graph::OpId before : op.after) open.push_back(before);
    for (graph::OpId i = id - 1; i >= 0; --i) {
      if (ops[static_cast<std::size_t>(i)].lane != op.lane) continue;
      open.push_back(i);
      break;
    }
  }
  return false;
}

}  // namespace kvcast::tests
