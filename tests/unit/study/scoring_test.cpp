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

  const nlohmann::json json = result::to_json(result)["score"];
  CHECK(json["benchmark"] == "small");
  CHECK(json["share_of_full"] == result.benchmark->share_of_full);
  CHECK(json["interval"] == nlohmann::json{result.benchmark->interval.low, result.benchmark->interval.high});
  REQUIRE(json["tasks"].size() == 2);
  CHECK(json["tasks"][0]["share_of_full"] <= json["tasks"][1]["share_of_full"]);
  CHECK_THAT(json["rests_on"].get<std::string>(), Contains("2 synthetic traces per task"));
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

}  // namespace
}  // namespace kvcast::tests
