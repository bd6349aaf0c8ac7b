// Nested results as flat, named columns: what a CSV file, a data frame or a table of a report can hold.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcast::store {

struct Column {
  std::string name;
  nlohmann::json value;  // number, string, boolean or null
};

// The scalars of `value` in its own order, each named by its path: {"decode": {"tpot_s": {"p99": 1}}} with the prefix
// "result" gives "result.decode.tpot_s.p99". A list of objects is named by their "owner", "kind" or "what"
// ("memory.hbm_owners.weights.bytes"), a pair of numbers by low and high; other lists (a timeline) have no place in a
// row and are left out.
std::vector<Column> flatten(const nlohmann::json& value, const std::string& prefix = "");

}  // namespace kvcast::store
