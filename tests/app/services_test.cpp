// Runs with traffic, end to end: sweeps over loads, their tables, and the timeline of requests.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/process.hpp"
#include "app/stored_results.hpp"
#include "support/perfetto.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

namespace {

constexpr const char* kService =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\n"
    "framework: {name: vllm, warmup_steps: 3, measured_steps: 3, sampled_contexts: 2}\n"
    "traffic: {rate: 4, requests: 40, prompt_tokens: 600, output_tokens: 20, slo: {ttft: 1 s}}\n";
constexpr const char* kAxes = "sweep:\n  traffic.rate: [2, 8]\n  policy: [full, {name: snapkv, budget: 128}]\n";

std::string file_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a sweep over rates resumes after kills, and its tables have the keys of traffic", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", std::string(kService) + kAxes);
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "whole", "-j", "2"}).code == 0);
  const auto whole = stored_results(scratch / "whole");
  const Output again = kvcast({"sweep", config, "-o", scratch / "whole"});
  CHECK_THAT(again.out, Contains("Capacity within the SLO: "));
  REQUIRE(whole.size() == 4);
  CHECK(resume_after_kills({"sweep", config, "-o", scratch / "killed", "-j", "2"}, scratch / "killed", whole.size(),
                           5) > 0);
  CHECK(stored_results(scratch / "killed") == whole);

  REQUIRE(kvcast({"report", scratch / "killed"}).code == 0);
  const std::string tables = scratch / "killed/report/tables/";
  const std::string rows = file_of(tables + "experiments.csv");
  for (const char* column : {"config.traffic.rate", "config.traffic.requests", "config.traffic.slo.ttft",
                             "config.scheduler.kind", "config.scheduler.max_num_seqs", "serving.state"}) {
    INFO(column);
    CHECK_THAT(rows, Contains(column));
  }
  for (const char* table : {"moments.csv", "curves.csv", "capacities.csv"}) {
    INFO(table);
    CHECK(std::filesystem::file_size(tables + table) > 40);
  }
  CHECK_THAT(file_of(scratch / "killed/report/index.html"), Contains("latency_load"));
}

TEST_CASE("the batch of a service under full KV has the length of its requests, whatever is replayed") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", std::string(kService) + "policy: full\n");
  const Output o =
      kvcast({"run", config, "--json", "--set", "traffic.prompt_tokens=6000", "--set", "traffic.requests=8"});
  REQUIRE(o.code == 0);
  CHECK(json::parse(o.out).at("config").at("workload").at("prompt_tokens") == 6000);
}

TEST_CASE("the timeline of a service has a row a slot, in which requests follow one another") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", std::string(kService) + "policy: full\n");
  const Output o = kvcast({"run", config, "--set", "scheduler.max_num_seqs=3", "--timeline", scratch / "t.json"});
  REQUIRE(o.code == 0);
  CHECK_THAT(o.out, Contains("opens in Perfetto"));
  const auto trace = read_as_perfetto(json::parse(file_of(scratch / "t.json")));
  CHECK(trace.refused == 0);
  std::map<std::string, std::int64_t> free_from;  // row → end of its last slice
  std::map<std::int64_t, double> tokens;          // request → tokens that it generates after the first
  std::set<std::int64_t> read;
  for (const auto& s : trace.slices) {
    CHECK(s.parent < 0);
    CHECK(s.begin >= free_from[s.row]);
    free_from[s.row] = s.end;
    const auto request = s.args.at("request").get<std::int64_t>();
    if (s.category == "prefill") read.insert(request);
    if (s.category == "decode") tokens[request] += s.args.at("tokens").get<double>();
    const bool waits = s.category == "queued" || s.category == "preempted";
    CHECK(s.row.starts_with(waits ? "place " : "slot "));
    if (!waits) CHECK(std::stoi(s.row.substr(5)) < 3);
  }
  CHECK(read.size() == 40);
  REQUIRE(tokens.size() == 40);
  for (const auto& [request, count] : tokens) CHECK(count == 19);
}

}  // namespace kvcast::tests
