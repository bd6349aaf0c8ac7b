// Policies put together on the command line, and what sparse prompts report.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "app/record_of.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

namespace {

const std::string kRun =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 2000, decode_tokens: 20}\n"
    "trace: {recipe: needle, layers: 2, steps: 6}\nframework: {warmup_steps: 2, measured_steps: 2}\npolicy: ";

json run(const std::string& policy, const std::vector<std::string>& settings = {}) {
  return record_of(kRun + policy + "\n", settings);
}

}  // namespace

TEST_CASE("sparse prefill shortens the time to the first token and leaves the steps unchanged", "[minutes]") {
  const std::string quest = "{name: quest, budget: 256}";
  const json alone = run(quest), sparse = run("{name: minference, vertical: 50, slash: 100, then: " + quest + "}");
  CHECK(sparse["decode"]["tpot_s"]["mean"] == alone["decode"]["tpot_s"]["mean"]);
  CHECK(sparse["accuracy"]["recall_mass_mean"] == alone["accuracy"]["recall_mass_mean"]);
  CHECK(sparse["accuracy"]["prompt_density"].get<double>() < 0.5);
  CHECK(sparse["accuracy"]["prompt_recall_mass_mean"].get<double>() > sparse["accuracy"]["prompt_density"]);
  CHECK_FALSE(alone["accuracy"].contains("prompt_density"));
  const json given = run("{name: xattention, density: 0.1, then: " + quest + "}");
  CHECK(given["prefill"]["ttft_s"] < run("{name: xattention, density: 0.9, then: " + quest + "}")["prefill"]["ttft_s"]);
}

TEST_CASE("composition files accept settings of the policies inside") {
  const json small = run("{name: kivi-quest}", {"policy.selector.budget=64"});
  const json large = run("{name: kivi-quest}", {"policy.selector.budget=512"});
  // Whole pages of 16, except the last one if it is among them.
  CHECK(small["accuracy"]["attended_mean"].get<double>() == Approx(64).margin(15));
  CHECK(large["accuracy"]["attended_mean"].get<double>() == Approx(512).margin(15));
  CHECK(small["decode"]["tokens_per_s"] > large["decode"]["tokens_per_s"]);
  CHECK(run("{name: rocketkv-adakv-sparq, budget: 256}")["accuracy"]["attended_mean"].get<double>() <= 129);
}

TEST_CASE("an error inside a policy is reported at its location") {
  const Scratch scratch;
  const std::string path = scratch.write("run.yaml", kRun + "{name: minference, then: {name: quest, bugdet: 64}}\n");
  const Output o = kvcast({"run", path});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains("run.yaml:6:") && Contains("unknown policy parameter \"bugdet\"") && Contains("known: "));
  const std::string file = scratch.write("mine.yaml", "description: a file\nname: quset\n");
  const Output named = kvcast({"run", path, "--set", "policy=" + file});
  CHECK(named.code == 2);
  CHECK_THAT(named.err, Contains("mine.yaml:2:7: unknown policy \"quset\" (did you mean \"quest\"?)"));
  const Output twice = kvcast({"run", path, "--set", "policy={name: xattention, then: minference}"});
  CHECK(twice.code == 2);
  CHECK_THAT(twice.err, Contains("then: the prompt has a sparse pattern already"));
}

TEST_CASE("a run with a sparse prompt reports that its task score leaves out a part of the loss", "[minutes]") {
  const Scratch scratch;
  const std::string path = scratch.write("run.yaml", kRun + "{name: minference, then: {name: quest, budget: 256}}\n");
  const std::string out = kvcast({"run", path, "--set", "score=ruler"}).out;
  CHECK_THAT(out,
             Contains("It leaves out a part of the loss: keys and values of a replay are those of full attention"));
  CHECK_THAT(out, Contains("No score of ruler is predicted") && !Contains("--set score=ruler predicts"));
}

TEST_CASE("policies --json states which policies can be stages of a composition") {
  const json all = json::parse(kvcast({"policies", "--json"}).out);
  for (const json& policy : all) {
    if (policy["name"] == "adakv" || policy["name"] == "sparq") CHECK(policy["stages"] == true);
    if (policy["name"] == "freekv" || policy["name"] == "h2o") CHECK(policy["stages"] == false);
  }
  CHECK(all.size() >= 43);
}

TEST_CASE("policies read the bases measured on a trace") {
  const Scratch scratch;
  const std::string trace = scratch / "t.safetensors", bases = scratch / "b.safetensors";
  REQUIRE(kvcast({"trace", "synth", "needle", "-o", trace, "--set", "prompt_tokens=600"}).code == 0);
  const Output made = kvcast({"profile", "--trace", trace, "-o", scratch / "p.yaml", "--bases", bases});
  INFO(made.err);
  REQUIRE(made.code == 0);
  CHECK_THAT(made.out, Contains("keys_before_rope"));
  const auto mass = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"replay", "--trace", trace,       "--policy",
                                          "loki",   "--set",   "budget=64", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output o = kvcast(arguments);
    INFO(o.err);
    REQUIRE(o.code == 0);
    return json::parse(o.out)["recall_mass_mean"].get<double>();
  };
  CHECK(mass({"--set", "basis=" + bases}) == Approx(mass({})).epsilon(1e-6));
}

TEST_CASE("a policy without its profile or with too wide a window is refused by name", "[minutes]") {
  const Scratch scratch;
  const auto error = [&](const std::string& policy) {
    const std::string run = scratch.write("run.yaml",
                                          "model: llama-3.2-1b\nhardware: h100-sxm\nworkload: {prompt_tokens: 600, "
                                          "decode_tokens: 4}\npolicy: " +
                                              policy + "\n");
    const Output o = kvcast({"run", run});
    CHECK(o.code == 2);
    return o.err;
  };
  CHECK_THAT(error("{name: snapkv, budget: 16, window: 64}"),
             Contains("run.yaml:4:44: snapkv: the window (64 tokens) exceeds the 16 tokens"));
  CHECK_THAT(error("{name: rkv, budget: 64, window: 64}"), Contains("run.yaml:4:41: rkv: window (64) must be smaller"));
  const std::string trace = scratch / "t.safetensors";
  REQUIRE(kvcast({"trace", "synth", "needle", "-o", trace, "--set", "model=qwen2.5-7b", "--set", "prompt_tokens=300",
                  "--set", "decode_steps=3", "--set", "layers=1"})
              .code == 0);
  const Output replay = kvcast({"replay", "--trace", trace, "--policy", "compresskv", "--set", "budget=128"});
  CHECK(replay.code == 2);
  CHECK_THAT(replay.err, Contains("compresskv needs a profile of the model with "));
}

TEST_CASE("a run states why it has no task score", "[minutes]") {
  const Scratch scratch;
  const auto text = [&](const std::string& policy) {
    return kvcast({"run", scratch.write("run.yaml", kRun + policy + "\n")}).out;
  };
  CHECK_THAT(text("{name: kivi, residual: 32}"), Contains("No task score is predicted: the policy rounds the cache"));
  CHECK_THAT(text("full"), Contains("The task score is ") && !Contains("No task score"));
}

}  // namespace kvcast::tests
