// The results in a store, for comparing one sweep with another.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "result/json.hpp"
#include "store/store.hpp"

namespace kvcast::test {

// Results by key, without the parts that may differ between two runs of one sweep.
inline std::map<std::string, nlohmann::json> stored_results(const std::string& dir) {
  std::map<std::string, nlohmann::json> rows;
  const auto store = store::Store::open(dir, store::Store::Open::kExisting);
  store.for_each([&rows](const store::Stored& s) {
    nlohmann::json result = result::to_json(s.result);
    result["engine"].erase("wall_s");
    result.erase("timeline");  // which experiments are drawn depends on where the sweep resumes
    CHECK(rows.emplace(s.result.key, result).second);
  });
  return rows;
}

}  // namespace kvcast::test
