// Benchmark scores in studies: keys, which scores are made, and how results show them.
#include "study/scoring.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "result/json.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

using Catch::Contains;

class Files {
 public:
  Files() {
    std::ofstream(path()) << "one: {recipe: niah, steps: 4, score: exact, context: 1024}\n"
                             "two: {recipe: niah, steps: 8, score: overlap, floor: 0.5, context: 1024}\n";
  }
  std::string path() const { return folder_.path() + "/small.yaml"; }

 private:
  TemporaryDirectory folder_;
};

config::Node scored_run(const std::string& more) {
  return config::parse_yaml(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 16}\n"
      "trace: {recipe: needle, layers: 1, steps: 4}\n" +
          more,
      "run.yaml");
}

std::string key(const std::string& score) {
  return study::prepare(scored_run("policy: {name: quest, budget: 128}\n" + score)).key;
}

result::Result scored(const std::string& more, study::Scores scores) {
  study::Point point{scored_run(more), {}, {}};
  point.ask.effects = simulate::Effects::kNone;
  study::StudyOptions options;
  options.scores = scores;
  return study::run_all({point}, options).front();
}

TEST_CASE("the benchmark is part of an experiment's key, the floor is not") {
  const Files files;
  const std::string plain = key("");
  CHECK(key("score: ruler\n") == plain);  // the default
  CHECK(key("score: {floor: 50 %}\n") == plain);
  CHECK(key("score: none\n") != plain);
  CHECK(key("score: niah\n") != plain);
  const std::string of_file = key("score: " + files.path() + "\n");
  CHECK(of_file != plain);
  std::ofstream(files.path()) << "one: {recipe: niah, steps: 5, score: exact, context: 1024}\n";
  CHECK(key("score: " + files.path() + "\n") != of_file);
  CHECK_THAT(error_of([] { key("score: ruller\n"); }), Contains("run.yaml:6:8") && Contains("scbench"));
}

TEST_CASE("a trace's missing file is located in the run") {
  const config::Node run =
      scored_run("policy: full\n").with("trace", config::parse_yaml("file: none.safetensors", "run.yaml"));
  CHECK(error_of([&] { study::prepare(run); }) == "run.yaml:1:7: no such file: none.safetensors");
}

TEST_CASE("a study computes the requested scores") {
  const Files files;
  const std::string quest = "policy: {name: quest, budget: 128}\n", asked = "score: " + files.path() + "\n";
  CHECK_FALSE(scored(quest + asked, study::Scores::kNone).benchmark);
  CHECK_FALSE(scored(quest + "score: none\n", study::Scores::kAll).benchmark);
  // RULER of a 1B model is in no table.
  CHECK_FALSE(scored(quest, study::Scores::kAtHand).benchmark);
  const result::Result result = scored(quest + asked, study::Scores::kAtHand);
  REQUIRE(result.benchmark);
  CHECK(result.benchmark->benchmark == "small");
  const auto metric = result::find_metric("score");
  REQUIRE(metric != nullptr);
  CHECK(result::value(result, *metric) == result.benchmark->share_of_full);
  CHECK(result::interval(result, *metric)->low == result.benchmark->interval.low);

  CHECK(result::to_json(result)["schema"] == "kvcast-result/2");
  const nlohmann::json json = result::to_json(result)["score"];
  CHECK(json["rests_on"] == json["origin"]);  // its name in schema 1
  CHECK(json["benchmark"] == "small");
  CHECK(json["share_of_full"] == result.benchmark->share_of_full);
  CHECK(json["interval"] == nlohmann::json{result.benchmark->interval.low, result.benchmark->interval.high});
  REQUIRE(json["tasks"].size() == 2);
  CHECK(json["tasks"][0]["share_of_full"] <= json["tasks"][1]["share_of_full"]);
  CHECK_THAT(json["origin"].get<std::string>(), Contains("2 synthetic traces per task"));
}

TEST_CASE("a score that cannot be predicted states the reason, and the experiment is unaffected") {
  const Files files;
  const result::Result result = scored("policy: kivi\nscore: " + files.path() + "\n", study::Scores::kAll);
  CHECK(result.status == result::Status::kOk);
  CHECK_FALSE(result.benchmark);
  const nlohmann::json json = result::to_json(result)["score"];
  CHECK(json["benchmark"] == files.path());
  CHECK_THAT(json["refused"].get<std::string>(), Contains("rounding"));
  CHECK_FALSE(json.contains("share_of_full"));
}

TEST_CASE("the score of a stream is the mean over its requests, in points of the uncompressed model") {
  result::BenchmarkScore near, far;
  near.benchmark = far.benchmark = "small", near.context = 4096, far.context = 32768, far.origin = "replays";
  near.tasks = {{"a", 0.9, {0.8, 1}, 80}, {"b", 1, {1, 1}, 40}};
  near.share_of_full = (72.0 + 40) / 120, near.interval = {0.9, 1};
  far.tasks = {{"b", 0.25, {0.2, 0.3}, 20}, {"a", 0.5, {0.4, 0.6}, 60}};
  far.share_of_full = (30.0 + 5) / 80, far.interval = {0.3, 0.5};
  const result::BenchmarkScore one = study::score_of_stream({{4000, 1, near}});
  CHECK((one.share_of_full == near.share_of_full && one.context == 4096));
  const result::BenchmarkScore all = study::score_of_stream({{4000, 0.75, near}, {30000, 0.25, far}});
  // Points: 0.75 · 120 and 0.25 · 80 of the uncompressed model, of which 0.75 · 112 and 0.25 · 35 are kept.
  CHECK(all.share_of_full == Approx((84 + 8.75) / 110));
  CHECK(all.interval.low == Approx((90 * 0.9 + 20 * 0.3) / 110));
  CHECK(all.interval.high == Approx((90 * 1.0 + 20 * 0.5) / 110));
  REQUIRE(all.tasks.size() == 2);
  CHECK((all.tasks[0].task == "a" && all.tasks[0].share_of_full == Approx((54 + 7.5) / 75)));
  CHECK((all.tasks[1].task == "b" && all.tasks[1].share_of_full == Approx((30 + 1.25) / 35)));
  CHECK(all.tasks[0].interval.low == Approx((60 * 0.8 + 15 * 0.4) / 75));
  CHECK(all.context == 0);
  CHECK_THAT(all.origin, Contains("75 % of 4000 tokens: 93.3 %") && Contains("replays"));
}

TEST_CASE("requests that the budget covers lose nothing, the others what they lose alone") {
  const TemporaryDirectory folder;
  const std::string file = folder.path() + "/own.yaml";
  std::ofstream(file) << "one: {recipe: niah, steps: 4, score: exact}\n";
  const std::string quest = "policy: {name: quest, budget: 512}\nscore: " + file + "\n";
  const auto of = [&](const std::string& traffic) {
    config::Node run = scored_run(quest).without({"workload"});
    const study::Prepared prepared = study::prepare(run = run.with("traffic", config::parse_yaml(traffic, "run.yaml")));
    study::Point point{run, {}, {}};
    point.ask.effects = simulate::Effects::kNone;
    study::StudyOptions options;
    options.scores = study::Scores::kAtHand;
    return std::pair(*prepared.requests, *study::run_all({point}, options).front().benchmark);
  };
  const auto [lengths, mixed] = of("{rate: 1, requests: 200, prompt_tokens: {low: 100, high: 3000}, output_tokens: 8}");
  REQUIRE(lengths.replayed.size() == 3);
  CHECK(lengths.shares[0] + lengths.shares[1] + lengths.shares[2] == Approx(1));
  REQUIRE((lengths.replayed[0] < 500 && lengths.replayed[1] > 512));
  const auto [all_long, alone] = of("{rate: 1, requests: 20, prompt_tokens: 2000, output_tokens: 8}");
  CHECK(all_long.shares == std::vector<double>{1});
  CHECK(alone.share_of_full < 1);
  // All prompts above the budget are replayed at 4K, the shortest length of the benchmark.
  CHECK(mixed.share_of_full == Approx(lengths.shares[0] + (1 - lengths.shares[0]) * alone.share_of_full));
}

}  // namespace
}  // namespace kvcast::tests
