// Benchmark scores of runs and sweeps: text, JSON, columns, and replays that cannot be kept.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/process.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

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

TEST_CASE("a run shows the benchmark score that its config requests") {
  const Scratch scratch;
  const std::string tasks = scratch.write("tasks.yaml", kTasks);
  const std::string config = scratch.write(
      "run.yaml", std::string(kScoredRun) + "policy: {name: streaming_llm, budget: 64}\nscore: " + tasks + "\n");
  const Output text = kvcast({"run", config});
  REQUIRE(text.code == 0);
  // The task without a floor loses most; that with the highest one is not among the three.
  CHECK_THAT(text.out, Contains("Predicted benchmark score") &&
                           Contains("mean over 4 tasks of tasks, lowest in hard ") && !Contains("plain"));
  const json score = json::parse(kvcast({"run", config, "--json"}).out)["score"];
  REQUIRE(score["tasks"].size() == 4);
  double sum = 0;
  for (const json& task : score["tasks"]) sum += task["share_of_full"].get<double>();
  CHECK(score["share_of_full"].get<double>() == Approx(sum / 4));
  CHECK(score["interval"][0] < score["share_of_full"]);
  CHECK_FALSE(json::parse(kvcast({"run", config, "--json", "--set", "score=none"}).out).contains("score"));
}

TEST_CASE("a run warns if it cannot store its replays, and still reports the score") {
  const Scratch scratch;
  const std::string config = scratch.write(
      "run.yaml", std::string(kScoredRun) +
                      "policy: {name: snapkv, budget: 64}\nscore: " + scratch.write("tasks.yaml", kTasks) + "\n");
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", config.c_str(), 1);  // a file: no folder can be made below it
  const Output o = kvcast({"run", config});
  if (before != nullptr) {
    setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  } else {
    unsetenv("XDG_CACHE_HOME");
  }
  CHECK(o.code == 0);
  CHECK_THAT(o.err, Contains("warning: replays for benchmark scores are not kept"));
  CHECK_THAT(o.out, Contains("mean over 4 tasks"));
}

TEST_CASE("a sweep stores scores unless they are switched off") {
  const Scratch scratch;
  const std::string sweep =
      std::string(kScoredRun) + "sweep: {workload.batch: [1, 2], policy: [full, {name: snapkv, budget: 64}, kivi]}\n";
  const std::string asked = scratch.write(
      "asked.yaml", sweep + "score: {benchmark: " + scratch.write("tasks.yaml", kTasks) + ", floor: 90 %}\n");
  const std::string none = scratch.write("none.yaml", sweep + "score: none\n");
  REQUIRE(kvcast({"sweep", asked, "-o", scratch / "asked"}).code == 0);
  REQUIRE(kvcast({"sweep", none, "-o", scratch / "none"}).code == 0);
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

TEST_CASE("a user's rows are simulated and added to the evidence, and repeated measurements replace them") {
  const Scratch scratch;
  // Published records of one table are enough.
  std::istringstream all(slurp(std::string(KVCAST_SOURCE_DIR) + "/configs/accuracy/evidence.csv"));
  std::string published, line;
  std::getline(all, published);
  for (published += '\n'; std::getline(all, line);) {
    if (line.starts_with("CTkvr,Table 10,")) published += line + "\n";
  }
  const std::string records = scratch.write("records.csv", published);
  const std::string parameters =
      scratch.write("parameters.yaml", slurp(std::string(KVCAST_SOURCE_DIR) + "/configs/accuracy/evidence.yaml"));
  const auto fit = [&](const std::string& value) {
    const std::string rows =
        "paper,table,model,benchmark,context,task,method,budget,budget_unit,value,unit\n"
        "Mine,Table 1,Llama-3.1-8B-Instruct,RULER,4K,niah_single_1,FullKV,full,tokens,99,accuracy_%\n"
        "Mine,Table 1,Llama-3.1-8B-Instruct,RULER,4K,niah_single_1,SnapKV,512,tokens," +
        value + ",accuracy_%\n";
    const Output out = kvcast(
        {"fit", "evidence", "--rows", scratch.write("mine.csv", rows), "--records", records, "--out", parameters});
    REQUIRE(out.code == 0);
    return slurp(records);
  };
  const std::string first = fit("81"), again = fit("41");
  // Four query heads share a KV head; 4K are 3,968 tokens of prompt and 128 of answer. The full score is the table's; a
  // needle that SnapKV keeps scores 100.
  const std::string own = "Mine,Table 1,llama-3.1-8b,ruler,niahsingle1,snapkv,4,3968,512,99,99,";
  CHECK(first.find(own + "81,") != std::string::npos);
  CHECK(again.find(own + "41,") != std::string::npos);
  CHECK(again.find(own + "81,") == std::string::npos);
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  CHECK(lines(first) == lines(published) + 1);
  CHECK(lines(again) == lines(first));
  CHECK_THAT(slurp(parameters), Contains("# Written by `kvcast fit evidence`") && Contains("components:"));

  const std::string twice = slurp(records);
  CHECK(kvcast({"fit", "evidence", "--rows", scratch.write("no.csv", "paper,table\nMine,Table 1\n"), "--records",
                records, "--out", parameters})
            .code == 2);
  CHECK(slurp(records) == twice);  // a refused table changes nothing
}

TEST_CASE("fit accuracy uses all rows of a table without marks, and no row that is marked as held out") {
  const Scratch scratch;
  const auto fit = [&](const std::string& column, const std::string& mark) {
    const std::string row = "Mine,Table 1,Llama-3.1-8B-Instruct,RULER,4K,niah_single_3,";
    const std::string table = "paper,table,model,benchmark,context,task,method,budget,budget_unit,value" + column +
                              "\n" + row + "FullKV,full,tokens,100" + mark + "\n" + row + "SnapKV,128,tokens,40" +
                              mark + "\n" + row + "Quest,256,tokens,30" + mark + "\n";
    return kvcast({"fit", "accuracy", "--seeds", "1", "--published", scratch.write("mine.csv", table), "-o",
                   scratch.write("link.yaml", "")});
  };
  const Output out = fit("", "");
  CHECK(out.code == 0);
  CHECK_THAT(out.out, Contains("2 rows of mine.csv that are not held out") && Contains("kappa: {value: "));
  CHECK(fit(",held_out", ",false").code == 0);
  const Output none = fit(",held_out", ",true");
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("mine.csv: no row to fit"));
}

}  // namespace kvcast::tests
