// Benchmark scores of runs and sweeps: text, JSON, columns, and replays that cannot be kept.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "store/store.hpp"

using namespace kvcast::test;
using Catch::Contains;
using nlohmann::json;

namespace {

constexpr const char* kScoredRun =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 16}\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\n"
    "framework: {warmup_steps: 1, measured_steps: 2, sampled_contexts: 2}\n";
constexpr const char* kTasks =
    "easy: {recipe: niah, steps: 4, score: exact, context: 1024, floor: 0.9}\n"
    "hard: {recipe: niah, steps: 4, score: exact, context: 1024}\n"
    "long: {recipe: niah, steps: 4, score: exact, context: 2048, floor: 0.5}\n"
    "plain: {recipe: niah, steps: 4, score: overlap, context: 1024, floor: 0.95}\n";

}  // namespace

TEST_CASE("a run shows the score that it asks for") {
  const Scratch scratch;
  const std::string tasks = scratch.write("tasks.yaml", kTasks);
  const std::string config = scratch.write(
      "run.yaml", std::string(kScoredRun) + "policy: {name: streaming_llm, budget: 64}\nscore: " + tasks + "\n");
  const Output text = kvcast::test::kvcast({"run", config});
  REQUIRE(text.code == 0);
  // The task without a floor loses most; that with the highest one is not among the three.
  CHECK_THAT(text.out, Contains("Predicted benchmark score") &&
                           Contains("mean over 4 tasks of tasks, lowest in hard ") && !Contains("plain"));
  const json score = json::parse(kvcast::test::kvcast({"run", config, "--json"}).out)["score"];
  REQUIRE(score["tasks"].size() == 4);
  double sum = 0;
  for (const json& task : score["tasks"]) sum += task["share_of_full"].get<double>();
  CHECK(score["share_of_full"].get<double>() == Approx(sum / 4));
  CHECK(score["interval"][0] < score["share_of_full"]);
  CHECK_FALSE(
      json::parse(kvcast::test::kvcast({"run", config, "--json", "--set", "score=none"}).out).contains("score"));
}

TEST_CASE("replays that cannot be kept are a warning, and the score is there") {
  const Scratch scratch;
  const std::string config = scratch.write(
      "run.yaml", std::string(kScoredRun) +
                      "policy: {name: snapkv, budget: 64}\nscore: " + scratch.write("tasks.yaml", kTasks) + "\n");
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", config.c_str(), 1);  // a file: no folder can be made below it
  const Output o = kvcast::test::kvcast({"run", config});
  if (before != nullptr) {
    setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  } else {
    unsetenv("XDG_CACHE_HOME");
  }
  CHECK(o.code == 0);
  CHECK_THAT(o.err, Contains("warning: replays for benchmark scores are not kept"));
  CHECK_THAT(o.out, Contains("mean over 4 tasks"));
}

TEST_CASE("a sweep stores scores, and none where it says so") {
  const Scratch scratch;
  const std::string sweep =
      std::string(kScoredRun) + "sweep: {workload.batch: [1, 2], policy: [full, {name: snapkv, budget: 64}, kivi]}\n";
  const std::string asked = scratch.write(
      "asked.yaml", sweep + "score: {benchmark: " + scratch.write("tasks.yaml", kTasks) + ", floor: 90 %}\n");
  const std::string none = scratch.write("none.yaml", sweep + "score: none\n");
  REQUIRE(kvcast::test::kvcast({"sweep", asked, "-o", scratch / "asked"}).code == 0);
  REQUIRE(kvcast::test::kvcast({"sweep", none, "-o", scratch / "none"}).code == 0);
  const auto each = [&](const char* dir, const auto& look) {
    const auto store = kvcast::store::Store::open(scratch / dir, kvcast::store::Store::Open::kExisting);
    int rows = 0;
    store.for_each([&](const kvcast::store::Stored& s) { ++rows, look(s.result); });
    CHECK(rows == 6);
  };
  each("asked", [](const kvcast::result::Result& r) {
    INFO(r.subject.policy);
    CHECK(r.benchmark.has_value() == (r.subject.policy != "kivi"));
    if (r.subject.policy == "kivi") CHECK_THAT(r.benchmark_refused, Contains("rounding"));
    if (r.subject.policy == "full") CHECK(r.benchmark->share_of_full == 1);
    if (r.subject.policy == "snapkv") CHECK(r.benchmark->share_of_full < 1);
  });
  each("none", [](const kvcast::result::Result& r) {
    CHECK_FALSE(r.benchmark);
    CHECK(r.benchmark_refused.empty());
  });
}
