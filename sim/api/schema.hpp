// JSON schemas (draft 7) of the files that users write: editors complete and check YAML with them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcast::api {

// "run", "sweep", "plan".
std::vector<std::string> schema_kinds();

// Made from the tables of keys of runs and plans (config::run_shapes, plan::questions), from the declared
// parameters of the policies, and from the names under configs/. A schema rejects unknown keys and names, values of a
// wrong type or unit, and keys that exclude each other; rules that compare the values of several keys are left to the
// reader. `kind` is one of schema_kinds().
nlohmann::json schema(const std::string& kind);

}  // namespace kvcast::api
