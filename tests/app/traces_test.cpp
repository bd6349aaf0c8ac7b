// Runs and sweeps on several traces, as their users see them.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <map>

#include "app/process.hpp"
#include "app/record_of.hpp"
#include "app/stored_results.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

namespace {

const std::string kBase =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1000, decode_tokens: 16, batch: 2}\n"
    "framework: {warmup_steps: 2, measured_steps: 2, sampled_contexts: 2}\n";
const std::string kFreeKv = "policy: {name: freekv, budget: 128, sink: 16, recent: 16, page: 16}\n";
constexpr const char* kTwo =
    "traces: [{recipe: needle, layers: 1, steps: 4}, {recipe: local, seed: 2, layers: 1, steps: 4}]\n";

}  // namespace

TEST_CASE("a run that names no trace lists the default traces") {
  const json r = record_of(kBase + kFreeKv, {});
  CHECK(r["config"]["traces"] == "needle 1, longbench-single-doc 2, ruler-multikey2 3");
  CHECK(r["config"]["trace"] == json({{"layers", 2}, {"steps", 16}, {"window", 0}}));
  CHECK(r["accuracy"]["task"]["task"] == "niah_uuid, longbench_single_doc, ruler_multikey2");
  double step = 0;
  for (const auto& [recipe, seed] :
       std::map<std::string, int>{{"needle", 1}, {"longbench-single-doc", 2}, {"ruler-multikey2", 3}}) {
    const json alone = record_of(kBase + kFreeKv, {"trace.recipe=" + recipe, "trace.seed=" + std::to_string(seed)});
    CHECK(alone["config"]["trace"]["recipe"] == recipe);
    CHECK_FALSE(alone["config"].contains("traces"));
    step += alone["decode"]["tpot_s"]["mean"].get<double>() / 3;
  }
  CHECK(r["decode"]["tpot_s"]["mean"].get<double>() == Approx(step));
}

TEST_CASE("run lists all of its traces, and explain lists the one that it shows") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", kBase + kFreeKv + kTwo);
  const std::string out = kvcast({"run", config}).out;
  CHECK_THAT(out, Contains("Replayed: recipe needle, seed 1, 1 of 16 layers, 4 steps\n"
                           "          recipe local, seed 2, 1 of 16 layers, 4 steps\n"));
  const Output shown = kvcast({"explain", config, "--step", "1", "--layer", "0"});
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, Contains("Trace: recipe needle, seed 1, the first of 2\n"));
  CHECK(kvcast({"explain", config, "--step", "1", "--layer", "0", "--set", "policy.budget=64"}).out != shown.out);
}

TEST_CASE("an axis over recipes or seeds has one trace per point, however many a run has by default") {
  const Scratch scratch;
  const std::string config =
      scratch.write("sweep.yaml", "name: axes\n" + kBase +
                                      "policy: full\nsweep:\n  trace.recipe: [needle, local]\n  trace.seed: [4, 5]\n");
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "out", "-j", "2"}).code == 0);
  const auto rows = stored_results(scratch / "out");
  CHECK(rows.size() == 4);
  for (const auto& [key, row] : rows) {
    CHECK(row["config"]["trace"].contains("recipe"));
    CHECK_FALSE(row["config"].contains("traces"));
  }
}

TEST_CASE("a sweep on several traces that is killed and resumed equals one that ran through", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", "name: several\n" + kBase + kTwo +
                                                             "sweep:\n  workload.prompt_tokens: [500, 1000, 2000]\n"
                                                             "  policy.name: [quest, snapkv, arkvale]\n"
                                                             "  policy.budget: [128, 256]\n");
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "whole", "-j", "2"}).code == 0);
  const auto whole = stored_results(scratch / "whole");
  REQUIRE(whole.size() == 3 * 3 * 2);
  for (const auto& [key, row] : whole) CHECK(row["config"]["traces"] == "needle 1, local 2");
  CHECK(resume_after_kills({"sweep", config, "-o", scratch / "killed", "-j", "2"}, scratch / "killed", whole.size(),
                           6) > 0);
  CHECK(stored_results(scratch / "killed") == whole);
}

}  // namespace kvcast::tests
