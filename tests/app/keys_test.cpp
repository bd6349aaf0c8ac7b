// `kvcast keys`: the reference of a run's keys, and the page generated from it.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "app/process.hpp"

namespace kvcast::tests {

using nlohmann::json;

TEST_CASE("keys --json lists every key once, each with a meaning") {
  const Output o = kvcast({"keys", "--json"});
  REQUIRE(o.code == 0);
  std::set<std::string> listed;
  for (const json& key : json::parse(o.out)) {
    INFO(key["key"]);
    CHECK(listed.insert(key["key"]).second);
    CHECK_FALSE(key["meaning"].get<std::string>().empty());
  }
  for (const char* key : {"model", "traces", "workload.batch", "trace.file", "match.bytes_resident", "score.floor",
                          "deployment.weights", "framework.engine_step"}) {
    INFO(key);
    CHECK(listed.contains(key));
  }
}

TEST_CASE("keys describes a key with its values and default, and refuses a misspelt one with a suggestion") {
  const Output batch = kvcast({"keys", "workload.batch"});
  CHECK(batch.code == 0);
  CHECK(batch.out == "workload.batch\nsequences of the batch\n\n  values       1 to 65536\n  default      1\n");
  const std::string below = kvcast({"keys", "traffic"}).out;  // a map, with its keys
  CHECK_THAT(below, Catch::StartsWith("traffic\n") && Catch::Contains("\ntraffic.slo.ttft "));
  CHECK_THAT(below, !Catch::Contains("\nworkload"));
  const json weights = json::parse(kvcast({"keys", "deployment.weights", "--json"}).out);
  CHECK(weights["choices"].size() == 6);
  CHECK_FALSE(weights.contains("default"));  // as released
  CHECK(json::parse(kvcast({"keys", "model", "--json"}).out)["required"] == true);
  const Output misspelt = kvcast({"keys", "workload.batches"});
  CHECK(misspelt.code == 2);
  CHECK_THAT(misspelt.err, Catch::Contains("unknown key \"workload.batches\" (did you mean \"workload.batch\"?)"));
  CHECK_THAT(kvcast({"keys", "policy.budget"}).err, Catch::Contains("`kvcast policies NAME` lists the keys"));
  CHECK(kvcast({"keys", "model", "--markdown"}).code == 2);
}

TEST_CASE("docs/keys.md is what `kvcast keys --markdown` prints") {
  const Output o = kvcast({"keys", "--markdown"});
  REQUIRE(o.code == 0);
  INFO("run: kvcast keys --markdown > docs/keys.md");
  CHECK(o.out == slurp(std::string(KVCAST_SOURCE_DIR) + "/docs/keys.md"));
}

}  // namespace kvcast::tests
