// A sweep that is stopped at any moment resumes: no row lost, none doubled, and the same numbers in the end.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "app/process.hpp"
#include "app/stored_results.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

using nlohmann::json;

namespace {

std::int64_t results_of(const std::string& dir, kvcast::result::Status status) {
  return kvcast::store::Store::open(dir, kvcast::store::Store::Open::kExisting).count(status);
}

}  // namespace

TEST_CASE("a sweep killed at any moment and resumed equals one that ran through", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "whole", "-j", "2"}).code == 0);
  const auto whole = stored_results(scratch / "whole");
  REQUIRE(whole.size() == kPoints);

  CHECK(resume_after_kills({"sweep", config, "-o", scratch / "killed", "-j", "2"}, scratch / "killed", kPoints, 12) >
        0);
  CHECK(stored_results(scratch / "killed") == whole);
}

TEST_CASE("a finished sweep does nothing when it is run again") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "s"}).code == 0);
  const Output again = kvcast({"sweep", config, "-o", scratch / "s"});
  CHECK(again.code == 0);
  CHECK_THAT(again.err, Catch::Contains(std::to_string(kPoints) + " of them in the store already"));
  const auto is_sealed = [&] {
    return kvcast::store::Store::open(scratch / "s", kvcast::store::Store::Open::kExisting).was_sealed();
  };
  CHECK(is_sealed());
  std::filesystem::remove(scratch / "s/results.sqlite-seal");
  CHECK(kvcast({"sweep", config, "-o", scratch / "s"}).out == again.out);
  CHECK(is_sealed());
}

TEST_CASE("a finished sweep is not planned again, unless something that it was planned from is no longer the same") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  const auto run = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"sweep", config, "-o", scratch / "s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output output = kvcast(arguments);
    REQUIRE(output.code == 0);
    return output;
  };
  const Output first = run();
  auto store = kvcast::store::Store::open(scratch / "s", kvcast::store::Store::Open::kExisting);
  // Each plan writes the sweep's description, which kSweep leaves out.
  const auto is_planned_by = [&](const std::vector<std::string>& more = {}) {
    store.set_metadata(kvcast::store::kMetaDescription, "as it was");
    CHECK_THAT(run(more).err, Catch::Contains(std::to_string(kPoints) + " experiments"));
    return store.metadata(kvcast::store::kMetaDescription) != "as it was";
  };
  CHECK_FALSE(is_planned_by());
  CHECK(run().out == first.out);
  // Another sweep in between, and a file that the texts of a sweep may name.
  CHECK(is_planned_by({"--set", "workload.decode_tokens=8"}));
  CHECK(is_planned_by());
  CHECK_FALSE(is_planned_by());
  CHECK(is_planned_by({"--shard", "1/1"}));
  // A result is missing; then the numbers of a machine differ from what was written.
  const auto whole = stored_results(scratch / "s");
  const std::string path = scratch / "s/results.sqlite";
  is_planned_by();
  kvcast::store::Database(path, false, 1000).execute("DELETE FROM experiments WHERE ordinal = 0");
  CHECK(is_planned_by());
  CHECK(stored_results(scratch / "s") == whole);
  CHECK_FALSE(is_planned_by());
  kvcast::store::Database(path, false, 1000)
      .execute("UPDATE machine_numbers SET value = value + 1 WHERE value IS NOT NULL");
  CHECK(is_planned_by());
  CHECK_NOTHROW(store.machines());
}

TEST_CASE("a sweep that names a file of its own is planned each time") {
  const Scratch scratch;
  const std::string policy = scratch.write("policy.yaml", "name: quest\nbudget: 64\n");
  const std::string config = scratch.write(
      "sweep.yaml",
      "model: llama-3.2-1b\nhardware: h100-sxm\npolicy: {file: " + policy +
          "}\nworkload: {prompt_tokens: 300, decode_tokens: 16}\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
          "sweep: {workload.batch: [1, 3]}\n");
  const std::vector<std::string> sweep = {"sweep", config, "-o", scratch / "s"};
  REQUIRE(kvcast(sweep).code == 0);
  CHECK_THAT(kvcast(sweep).err, Catch::Contains("2 experiments, 2 of them in the store already"));
  scratch.write("policy.yaml", "name: quest\nbudget: 96\n");
  CHECK_THAT(kvcast(sweep).err, Catch::Contains("2 experiments, 0 of them in the store already"));
}

TEST_CASE("a second sweep into the same folder keeps all rows and shows only its own") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "s"}).code == 0);
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "s", "--set", "workload.decode_tokens=8"}).code == 0);
  CHECK(stored_results(scratch / "s").size() == kPoints);
  const Output back = kvcast({"sweep", config, "-o", scratch / "s"});
  CHECK_THAT(back.err, Catch::Contains(std::to_string(kPoints) + " of them in the store already"));
  CHECK(stored_results(scratch / "s").size() == kPoints);
}

TEST_CASE("shards divide a sweep without gap or overlap, and can write to one store", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  std::vector<pid_t> children;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    children.push_back(start({"sweep", config, "-o", scratch / "s", "--shard", shard, "-j", "1"},
                             scratch / ("out" + std::string(1, shard[0])),
                             scratch / ("err" + std::string(1, shard[0]))));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(stored_results(scratch / "s").size() == kPoints);
}

TEST_CASE("a shard number outside the number of parts is refused at its option") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  for (const char* bad : {"4/3", "0/0", "x", "1/0", "-1/2", "1/"}) {
    const Output o = kvcast({"sweep", config, "-o", scratch / "t", "--shard", bad});
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Catch::Contains("kvcast: --shard: " + std::string(bad) + " is not i/n with i from 1 to n"));
  }
}

TEST_CASE("a shard prints findings only once the folder has all experiments of the sweep", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  const auto shard = [&](const char* part, const char* dir) {
    const Output o = kvcast({"sweep", config, "-o", scratch / dir, "--shard", part});
    CHECK(o.code == 0);
    return o.out;
  };
  const std::string first = shard("1/2", "a");
  CHECK_THAT(first, Catch::StartsWith("This is shard 1 of 2.\n"));
  CHECK_THAT(first, Catch::Contains("The sweep has " + std::to_string(kPoints) + " experiments.") &&
                        Catch::Contains("`kvcast merge`") && Catch::Contains("`kvcast report`"));
  for (const char* finding : {"Best policy", "Break-even"}) CHECK_THAT(first, !Catch::Contains(finding));
  CHECK_THAT(shard("2/2", "b"), !Catch::Contains("Best policy"));
  const Output merged = kvcast({"merge", scratch / "a", scratch / "b", "-o", scratch / "both"});
  CHECK_THAT(merged.out, Catch::Contains("Best policy") && !Catch::Contains("This is shard"));
  CHECK_THAT(shard("2/2", "a"), Catch::Contains("Best policy"));
  CHECK_THAT(shard("1/1", "a"), Catch::Contains("Best policy") && !Catch::Contains("This is shard"));
}

TEST_CASE("an error anywhere in a sweep is found before any work") {
  const Scratch scratch;
  std::string text = kSweep;
  text.replace(text.find("exact_topk"), 10, "exact_tpok");
  const Output o = kvcast({"sweep", scratch.write("bad.yaml", text), "-o", scratch / "s"});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Catch::Contains("exact_tpok"));
  CHECK(!std::filesystem::exists(scratch / "s/results.sqlite"));
}

TEST_CASE("a score floor that varies between experiments is refused, because it does not change their results") {
  const Scratch scratch;
  for (const char* axis :
       {"score.floor: [50 %, 90 %]", "score: [{benchmark: ruler, floor: 50 %}, {benchmark: ruler, floor: 90 %}]",
        "zip: {score.floor: [50 %, 90 %], score.benchmark: [ruler, longbench]}"}) {
    const Output o = kvcast({"sweep", scratch.write("floor.yaml", kSweep + "  " + axis + "\n"), "-o", scratch / "s"});
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Catch::Contains("floor.yaml:13:") && Catch::Contains("score.floor affects conclusions, not "
                                                                           "results"));
  }
}

TEST_CASE("a setting that the sweep overrides everywhere is refused, not ignored") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  const auto with = [&](const char* setting) {
    return kvcast({"sweep", config, "-o", scratch / "s", "--set", setting, "--shard", "1/100"});
  };
  for (const auto& [setting, owner] : std::map<std::string, std::string>{
           {"workload.batch=2", "workload.batch"}, {"policy=tova", "policy"}, {"hardware.host.cores=4", "hardware"}}) {
    const Output o = with(setting.c_str());
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Catch::Contains("sweep.yaml:6:1: --set " + setting + " changes nothing: the sweep sets \"" +
                                      owner + "\" in all of its experiments"));
  }
  CHECK(with("workload.decode_tokens=16").code == 0);  // the value it has already, and the sweep does not set it
}

TEST_CASE("a policy that needs more than the trace contains is refused at its location, and the others run",
          "[minutes]") {
  const Scratch scratch;
  std::string text = kSweep;
  text += "    - policy: {name: h2o, budget: 64}\n";
  text.replace(text.find("[300, 600]"), 10, "[600]");
  text.replace(text.find("steps: 4"), 8, "steps: 4, window: 128");
  const std::string config = scratch.write("sweep.yaml", text);
  // 2 GPUs, 2 batches; 7 policies that run.
  for (const char* there : {"32 experiments, 0 of them", "32 experiments, 28 of them"}) {
    const Output o = kvcast({"sweep", config, "-o", scratch / "s"});
    CHECK(o.code == 2);
    CHECK_THAT(o.err,
               Catch::Contains(there) &&
                   Catch::Contains("sweep.yaml:13:22: h2o sums the weights of all prompt queries") &&
                   Catch::Contains("Set trace.window: 600 or use a capture with more queries\n4 experiments were "
                                   "refused; all others are in the store"));
  }
  CHECK(results_of(scratch / "s", kvcast::result::Status::kOk) == 2 * 2 * 7);
  CHECK(results_of(scratch / "s", kvcast::result::Status::kFailed) == 2 * 2);
}

TEST_CASE("a sweep with another description is the same sweep") {
  const Scratch scratch;
  REQUIRE(kvcast({"sweep", scratch.write("a.yaml", kSweep), "-o", scratch / "s"}).code == 0);
  const std::string told = "description: told better\n" + kSweep;
  const Output again = kvcast({"sweep", scratch.write("a.yaml", told), "-o", scratch / "s"});
  CHECK_THAT(again.err, Catch::Contains(std::to_string(kPoints) + " of them in the store already"));
}

TEST_CASE("a report's findings respect the score floor, and its tables contain task scores with their intervals") {
  const Scratch scratch;
  REQUIRE(kvcast({"sweep", scratch.write("a.yaml", kSweep), "-o", scratch / "s"}).code == 0);
  const Output report = kvcast({"report", scratch / "s"});
  REQUIRE(report.code == 0);
  CHECK_THAT(report.out, Catch::Contains("\n  a100-40gb-pcie4: full at ") && Catch::Contains("predicted RULER score") &&
                             Catch::Contains("floor 95 %"));
  std::map<std::string, kvcast::result::TaskScore> by_key;
  const auto store = kvcast::store::Store::open(scratch / "s", kvcast::store::Store::Open::kExisting);
  store.for_each([&](const kvcast::store::Stored& s) { by_key[s.result.key] = *s.result.accuracy.task; });
  std::ifstream file(scratch / "s/report/tables/summary.csv");
  std::string line;
  std::getline(file, line);
  const auto split = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream in(text);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    return cells;
  };
  const std::vector<std::string> header = split(line);
  const auto column = [&](const char* name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  REQUIRE(column("predicted_low") < header.size());
  std::getline(file, line);  // full KV: no comma within a text
  const std::vector<std::string> row = split(line);
  const kvcast::result::TaskScore task = by_key.at(row[column("key")]);
  CHECK(std::stod(row[column("predicted")]) == Approx(task.share_of_full));
  CHECK(row[column("predicted_low")].empty());  // full KV is its own reference
  CHECK(row[column("origin_predicted")] == "exact");
}

TEST_CASE("a sweep names the memory requests that exceeded the capacity") {
  const Scratch scratch;
  // Weights of 16 bits take 16 GB; activations of 4 prompts of 32768 tokens at once go far beyond 24 GB. With one
  // prompt after another in chunks of 1024 tokens, the 4 GiB of KV pairs per prompt (128 KiB per token) no longer fit.
  const std::string text =
      "model: llama-3.1-8b\nhardware: rtx-4090\npolicy: full\n"
      "trace: {recipe: needle, layers: 1, steps: 1}\n"
      "workload: {prompt_tokens: 32768, decode_tokens: 8, batch: 4}\n"
      "sweep:\n  zip: {workload.prefill_chunk: [0, 1024], workload.prefill_batch: [0, 1]}\n";
  const Output both = kvcast({"sweep", scratch.write("both.yaml", text), "-o", scratch / "both"});
  CHECK_THAT(both.out,
             Catch::Contains("2 experiments, 2 of them do not fit in memory (1 for KV cache, 1 for activations)\n"
                             "Activations are held for whole prompts and for all prompts at once, unless "
                             "workload.prefill_chunk and workload.prefill_batch are set."));
  const std::string chunked = "sweep: {workload.prefill_chunk: [1024], workload.prefill_batch: [1]}\n";
  const Output one = kvcast(
      {"sweep", scratch.write("one.yaml", text.substr(0, text.find("sweep:")) + chunked), "-o", scratch / "one"});
  CHECK_THAT(one.out, Catch::Contains(": 1 experiment, 1 of them do not fit in memory (1 for KV cache)\n") &&
                          !Catch::Contains("Activations"));
}

TEST_CASE("the report of an unfinished sweep states so and contains no findings of another sweep", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSweep);
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "s", "--shard", "1/2"}).code == 0);
  const std::string part = kvcast({"report", scratch / "s"}).out;
  CHECK_THAT(part, Catch::Contains(" of " + std::to_string(kPoints) + " experiments are finished"));
  // A finding on a shard need not hold for the sweep.
  CHECK_THAT(part, Catch::Contains("`kvcast merge` joins the folders of shards") && !Catch::Contains("Best policy"));
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "t", "--shard", "2/2"}).code == 0);
  CHECK_THAT(kvcast({"report", scratch / "s", scratch / "t", "-o", scratch / "r"}).out,
             Catch::Contains("These are shards of one sweep: kvcast merge " + (scratch / "s") + " " + (scratch / "t")));
  REQUIRE(kvcast({"sweep", config, "-o", scratch / "s"}).code == 0);
  CHECK_THAT(kvcast({"report", scratch / "s"}).out,
             !Catch::Contains("experiments are finished") && Catch::Contains("Best policy"));

  const auto findings = [&] {
    std::string text;
    const auto store = kvcast::store::Store::open(scratch / "s", kvcast::store::Store::Open::kExisting);
    for (const auto& f : store.findings()) text += f.title + "\n" + f.text + "\n" + f.detail + "\n";
    return text;
  };
  const std::string of_first = findings();
  const pid_t child = start({"sweep", config, "-o", scratch / "s", "--set", "workload.decode_tokens=24"},
                            scratch / "out", scratch / "err");
  for (int turn = 0; slurp(scratch / "err").find("in the store already") == std::string::npos; ++turn) {
    REQUIRE(turn < 30'000);  // a minute: the child has ended otherwise
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill(child, SIGKILL);
  wait_for(child);
  CHECK(findings() != of_first);
}

TEST_CASE("a sweep at equal attended tokens uses the solved budgets and resumes where it stopped") {
  const Scratch scratch;
  const std::string config = scratch.write("match.yaml",
                                           "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nscore: none\n"
                                           "workload: {prompt_tokens: 600, decode_tokens: 16}\n"
                                           "trace: {recipe: needle, layers: 1, steps: 4}\n"
                                           "sweep:\n"
                                           "  policy: [{name: streaming_llm, sink: 4}, full]\n"
                                           "  match.tokens_attended: [100, 200]\n");
  const auto first = kvcast({"sweep", config, "-o", scratch / "out"});
  REQUIRE(first.code == 0);
  CHECK_THAT(first.err, Catch::Contains("solving for the budgets of 2 experiments\n") &&
                            Catch::Contains("full has no budget to solve for and runs as it is"));
  const auto rows = stored_results(scratch / "out");
  REQUIRE(rows.size() == 4);
  for (const auto& [key, row] : rows) {
    const json &match = row.at("config").at("match"), &policy = row.at("config").at("policy");
    const double reached = match.at("reached"), asked = match.at("tokens_attended");
    CHECK(reached == row.at("accuracy").at("attended_mean"));
    // All of 600 tokens and 1 to 4 new ones, or a window that attends to its whole budget.
    CHECK(reached == (policy.at("name") == "full" ? 602.5 : asked));
    if (policy.at("name") != "full") CHECK(policy.at("budget") == asked);
  }
  const auto again = kvcast({"sweep", config, "-o", scratch / "out"});
  REQUIRE(again.code == 0);
  CHECK_THAT(again.err, Catch::Contains("4 experiments, 4 of them in the store already"));
  CHECK(stored_results(scratch / "out") == rows);
}

TEST_CASE("a run reports the budget that was solved for, or why there is none") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml",
                                           "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nscore: none\n"
                                           "workload: {prompt_tokens: 600, decode_tokens: 16}\n"
                                           "trace: {recipe: needle, layers: 1, steps: 4}\n"
                                           "policy: {name: streaming_llm, sink: 4}\nmatch: {tokens_attended: 100}\n");
  const auto run = kvcast({"run", config});
  REQUIRE(run.code == 0);
  CHECK_THAT(run.out, Catch::Contains("budget 100 solved for tokens_attended 100 (reached 100)"));
  CHECK_THAT(kvcast({"explain", config}).out, Catch::Contains("budget 100 solved for"));
  const auto both = kvcast({"run", config, "--set", "policy.budget=64"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Catch::Contains("`match:` solves for the budget"));
  const auto far = kvcast({"run", config, "--set", "match.tokens_attended=5000"});
  CHECK(far.code == 2);
  CHECK_THAT(far.err, Catch::Contains("cannot be reached") && Catch::Contains("602.5"));
}

TEST_CASE("a sweep that sets a parameter of other policies explains how to write it") {
  const Scratch scratch;
  const std::string sweep = scratch.write("sweep.yaml",
                                          "model: llama-3.1-8b\nhardware: h200\n"
                                          "sweep: {policy: [full, quest], policy.budget: [512, 2048]}\n");
  const Output o = kvcast({"sweep", sweep, "-o", scratch / "out"});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Catch::Contains("full: unknown policy parameter \"budget\"") && Catch::Contains("`cases:`"));
}
}  // namespace kvcast::tests
