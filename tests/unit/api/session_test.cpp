// Configurations that are no text, and sessions that share nothing.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/catalogue.hpp"
#include "api/kept_replays.hpp"
#include "api/replay.hpp"
#include "api/session.hpp"
#include "api/settings.hpp"
#include "base/build.hpp"
#include "base/parallel.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace api;

namespace {

TEST_CASE("a configuration in JSON is the same as in YAML, in its own order") {
  const auto json = nlohmann::ordered_json::parse(
      R"({"model": "m", "workload": {"prompt_tokens": "128K", "batch": 4, "x": 0.5, "on": true, "none": null},
          "sweep": {"policy.budget": [256, 512], "batch": ["x2", "40 GB"]}})");
  const config::Node node = node_of(json);
  CHECK(node.canonical() == config::parse_yaml("model: m\n"
                                               "workload: {prompt_tokens: 131072, batch: 4, x: 0.5, on: true, none: }\n"
                                               "sweep: {policy.budget: [256, 512], batch: [x2, 40 GB]}\n",
                                               "config")
                                .canonical());
  CHECK(node.find("sweep")->entries().front().first == "policy.budget");  // the first axis varies slowest
  CHECK(with_settings(node, {"workload.batch=8", "policy.name=quest"}).find("policy")->find("name")->text() == "quest");
}

TEST_CASE("errors of a configuration that is no text have no location") {
  Session session({});
  const config::Node node = node_of(nlohmann::ordered_json::parse(R"({"model": "llama-3.1-8b", "hardwear": "l40s"})"));
  CHECK_THROWS_WITH(session.run({node, {}, {}}, {}), Catch::StartsWith("run: unknown key \"hardwear\""));
}

TEST_CASE("a data folder holds for its thread and the threads that it starts") {
  const TemporaryDirectory mine, other;
  for (const std::string& folder : {mine.path(), other.path()})
    std::filesystem::create_directories(folder + "/configs/models");
  const std::string before = data_dir();
  {
    const DataFolder folder(mine.path());
    const DataFolder unchanged("");
    CHECK(data_dir() == mine.path());
    std::vector<std::string> seen(8);
    parallel_for(seen.size(), 4, [&](std::size_t i) { seen[i] = data_dir(); });
    for (const std::string& one : seen) CHECK(one == mine.path());
    std::jthread([&] { seen[0] = data_dir(); }).join();
    CHECK(seen[0] == before);
    {
      const DataFolder inner(other.path());
      CHECK(data_dir() == other.path());
    }
    CHECK(data_dir() == mine.path());
  }
  CHECK(data_dir() == before);
  SessionOptions nowhere;
  nowhere.data = mine.path() + "/none";
  CHECK_THROWS_WITH(Session(nowhere), Catch::Contains("no folder configs/models"));
}

replay::ReplayResult a_replay(int steps) {
  replay::ReplayResult replayed;
  replayed.trace_source = "made by hand";
  replayed.decode_steps = steps;
  return replayed;
}

TEST_CASE("replays are found again in the folder, and without one in memory only") {
  const TemporaryDirectory folder;
  {
    KeptReplays first(std::size_t{1} << 20, folder.path());
    CHECK_FALSE(first.get("a"));
    first.put("a", a_replay(3));
    CHECK(first.get("a")->decode_steps == 3);
  }
  KeptReplays second(std::size_t{1} << 20, folder.path());
  REQUIRE(second.get("a"));
  CHECK(replay::to_json(*second.get("a")) == replay::to_json(a_replay(3)));
  KeptReplays memory(std::size_t{1} << 20, "");
  memory.put("b", a_replay(4));
  CHECK(memory.get("b")->decode_steps == 4);
  CHECK_FALSE(KeptReplays(std::size_t{1} << 20, "").get("b"));
}

TEST_CASE("replays are kept in memory where the folder is a damaged store") {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/results.sqlite") << std::string(8192, 'x');
  KeptReplays replays(std::size_t{1} << 20, folder.path());
  replays.put("a", a_replay(3));
  CHECK(replays.get("a")->decode_steps == 3);
}

TEST_CASE("the catalogue lists frameworks and the files with settings of policies") {
  const nlohmann::json all = catalogue_json();
  const auto named = [](const nlohmann::json& list, const std::string& name) {
    for (const auto& entry : list) {
      if (entry.at("name") == name) return entry;
    }
    return nlohmann::json();
  };
  CHECK(named(all.at("frameworks"), "vllm").at("title").get<std::string>().starts_with("vLLM"));
  const nlohmann::json quest = named(all.at("policy_settings"), "quest-freekv");
  CHECK(quest.at("policy") == "quest");
  CHECK(quest.at("set").at("page") == "32");
  CHECK_FALSE(quest.at("set").contains("source"));
  CHECK(all.at("left_out").empty());
}

TEST_CASE("what a request takes is limited before it is begun") {
  SessionOptions options;
  options.study.threads = 1;
  options.budget = {.bytes = 1e6, .seconds = 1e9};
  Session session(std::move(options));
  const config::Node run = config::parse_yaml(
      "{model: llama-3.1-8b, hardware: l40s, policy: quest, workload: {prompt_tokens: 65536}, trace: {recipe: needle}}",
      "run");
  CHECK_THROWS_AS(session.run({run, {}, {}}, {}), study::OverBudget);
}

}  // namespace
}  // namespace kvcast::tests
