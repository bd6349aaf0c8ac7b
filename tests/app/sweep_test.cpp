// A sweep that is stopped at any moment goes on: no row lost, none doubled, and the same numbers in the end.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <map>
#include <thread>

#include "app/process.hpp"
#include "base/random.hpp"
#include "store/store.hpp"

using namespace kvcast::test;
using nlohmann::json;

namespace {

constexpr const char* kSweep =
    "name: killed\n"
    "model: llama-3.2-1b\n"
    "workload: {decode_tokens: 16}\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\n"
    "framework: {warmup_steps: 3, measured_steps: 3, sampled_contexts: 2}\n"
    "sweep:\n"
    "  workload.prompt_tokens: [300, 600]\n"
    "  hardware: [a100-40gb-pcie4, h100-sxm]\n"
    "  workload.batch: [1, 3]\n"
    "  cases:\n"
    "    - policy: full\n"
    "    - {policy.name: [quest, snapkv, exact_topk], policy.budget: [64, 128]}\n";
// 2 contexts, 2 cards, 2 batches; full once, 3 policies at 2 budgets
constexpr std::size_t kPoints = 2 * 2 * 2 * (1 + 3 * 2);

std::map<std::string, json> results(const std::string& dir) {
  std::map<std::string, json> rows;
  const auto store = kvcast::store::Store::open(dir, kvcast::store::Store::Open::kExisting);
  store.for_each([&rows](const kvcast::store::Record& r) {
    json result = r.result;
    result["engine"].erase("wall_s");
    result.erase("timeline");  // which experiments are drawn depends on where the sweep goes on
    CHECK(rows.emplace(r.key, result).second);
  });
  return rows;
}

}  // namespace

TEST_CASE("a sweep killed at any moment and resumed equals one that ran through") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast::test::kvcast({"sweep", config, "-o", scratch / "whole", "-j", "2"}).code == 0);
  const auto whole = results(scratch / "whole");
  REQUIRE(whole.size() == kPoints);

  const kvcast::Stream random(11);
  int killed = 0, code = -1;
  for (std::uint64_t attempt = 0; code != 0; ++attempt) {
    REQUIRE(attempt < 500);
    const pid_t child = start({"sweep", config, "-o", scratch / "killed", "-j", "2"}, scratch / "out", scratch / "err");
    // Moments spread over the length of a run; from the 12th attempt on it may run through.
    if (attempt < 12) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + random.below(attempt, 400)));
      kill(child, SIGKILL);
    }
    code = wait_for(child);
    killed += code == 128 + SIGKILL ? 1 : 0;
  }
  INFO("killed " << killed << " times");
  CHECK(results(scratch / "killed") == whole);
}

TEST_CASE("a finished sweep does nothing when it is run again") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast::test::kvcast({"sweep", config, "-o", scratch / "s"}).code == 0);
  const Output again = kvcast::test::kvcast({"sweep", config, "-o", scratch / "s"});
  CHECK(again.code == 0);
  CHECK_THAT(again.err, Catch::Contains(std::to_string(kPoints) + " of them in the store already"));
}

TEST_CASE("another sweep into the same folder loses nothing, and shows its own rows only") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast::test::kvcast({"sweep", config, "-o", scratch / "s"}).code == 0);
  REQUIRE(kvcast::test::kvcast({"sweep", config, "-o", scratch / "s", "--set", "workload.decode_tokens=8"}).code == 0);
  CHECK(results(scratch / "s").size() == kPoints);
  const Output back = kvcast::test::kvcast({"sweep", config, "-o", scratch / "s"});
  CHECK_THAT(back.err, Catch::Contains(std::to_string(kPoints) + " of them in the store already"));
  CHECK(results(scratch / "s").size() == kPoints);
}

TEST_CASE("shards part a sweep without gap or overlap, and one store takes all of them") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  std::vector<pid_t> children;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    children.push_back(start({"sweep", config, "-o", scratch / "s", "--shard", shard, "-j", "1"},
                             scratch / ("out" + std::string(1, shard[0])),
                             scratch / ("err" + std::string(1, shard[0]))));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(results(scratch / "s").size() == kPoints);
  for (const char* bad : {"4/3", "x", "1/0", "-1/2", "1/"}) {
    CHECK(kvcast::test::kvcast({"sweep", config, "-o", scratch / "t", "--shard", bad}).code == 2);
  }
}

TEST_CASE("a mistake anywhere in a sweep is found before any work") {
  const Scratch scratch;
  std::string text = kSweep;
  text.replace(text.find("exact_topk"), 10, "exact_tpok");
  const Output o = kvcast::test::kvcast({"sweep", scratch.write("bad.yaml", text), "-o", scratch / "s"});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Catch::Contains("exact_tpok"));
  CHECK(!std::filesystem::exists(scratch / "s/results.sqlite"));
}
