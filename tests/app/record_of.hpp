// The parsed output of `kvcast run --json` on a config.
#pragma once

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"

namespace kvcast::tests {

// The record of a run that must succeed; each setting is given as --set.
inline nlohmann::json record_of(const std::string& config, const std::vector<std::string>& settings) {
  const Scratch scratch;
  std::vector<std::string> arguments = {"run", scratch.write("run.yaml", config), "--json"};
  for (const std::string& s : settings) arguments.insert(arguments.end(), {"--set", s});
  const Output o = kvcast(arguments);
  INFO(o.err);
  REQUIRE(o.code == 0);
  return nlohmann::json::parse(o.out);
}

}  // namespace kvcast::tests
