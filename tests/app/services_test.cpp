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

TEST_CASE("an engine that reads a prompt in one pass says which prompts it rejects") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml",
                                           "model: llama-3.1-8b\nhardware: h100-sxm\npolicy: full\nscore: none\n"
                                           "framework: trtllm\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
                                           "traffic: {rate: 4, requests: 6, prompt_tokens: 9000, output_tokens: 20}\n");
  const Output none = kvcast({"run", config});
  REQUIRE(none.code == 0);
  CHECK_THAT(none.out, Contains("each of 6 requests is too long for the cache of ") &&
                           Contains("it reads a prompt in one pass of at most 8192 tokens (`scheduler.chunked_prefill: "
                                    "true` reads longer ones in parts)"));
  CHECK_THAT(kvcast({"run", config, "--set", "scheduler.chunked_prefill=true"}).out, !Contains("8192 tokens"));
  // Some prompts of 7000 to 9000 tokens are served.
  const Output some = kvcast({"run", config, "--set", "traffic.prompt_tokens={low: 7000, high: 9000}"});
  INFO(some.err);
  CHECK_THAT(some.out, Contains("rejected, and all numbers are of the others: it reads a prompt in one pass of at most "
                                "8192 tokens"));
}

TEST_CASE("a capacity is recommended of settings that keep the floor of the score alone") {
  const Scratch scratch;
  const std::string run =
      "model: llama-3.1-8b\nhardware: h100-sxm\nframework: {name: vllm, warmup_steps: 3, measured_steps: 3, "
      "sampled_contexts: 2}\npolicy: full\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
      "traffic: {rate: 0.3, requests: 20, prompt_tokens: 16K, output_tokens: 20, slo: {ttft: 5 s}}\n";
  const std::string choice = "{policy: [full, {name: snapkv, budget: 512}, {name: exact_topk, budget: 2048}]}";
  const Output chosen = kvcast({"plan", scratch.write("plan.yaml", run + "plan:\n  - choose: " + choice + "\n")});
  INFO(chosen.err);
  REQUIRE(chosen.code == 0);
  CHECK_THAT(chosen.out, Contains("score.share_of_full >= 95 %") && Contains("\n  full: ") &&
                             Contains("snapkv, budget 512: none; misses score.share_of_full >= 95 %, score ") &&
                             Contains("exact_topk, budget 2048: an oracle, which is a yardstick"));
  const Output free =
      kvcast({"plan", scratch.write("free.yaml", run + "score: none\nplan:\n  - choose: " + choice + "\n")});
  CHECK_THAT(free.out, !Contains("score"));

  const std::string sweep = scratch.write(
      "sweep.yaml", run + "sweep: {traffic.rate: [0.3], cases: [policy: full, policy: {name: snapkv, budget: 512}]}\n");
  const Output swept = kvcast({"sweep", sweep, "-o", scratch / "s"});
  INFO(swept.err);
  CHECK_THAT(swept.out, Contains("tokens: full at 0.3 or more requests/s; snapkv, budget 512 at 0.3 or more requests/s "
                                 "(score ") &&
                            Contains("%, below the floor)"));
}

}  // namespace kvcast::tests
