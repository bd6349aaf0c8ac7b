// Ablations: contents of the file, changed keys and their effect, worked out by hand.
#include "accuracy/ablation.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "config/find.hpp"
#include "score/recall_replays.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace accuracy;

namespace {

class AblationFile {
 public:
  explicit AblationFile(const std::string& text) : path_(folder_.path() + "/a.yaml") { std::ofstream(path_) << text; }
  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory folder_;
  std::string path_;
};

std::string refusal(const std::string& text) {
  const AblationFile file(text);
  return error_of([&] { read_ablations(file.path()); });
}

TEST_CASE("an ablation sets only keys that a recipe has") {
  const AblationFile file("one: {takes_away: x, set: {needles.amplitude: 1, question.tokens: 40}}\n");
  const Ablation one = read_ablations(file.path()).at(0);
  trace::Recipe recipe;
  recipe.needles.noise = 0.5;
  ablate(one, recipe);
  CHECK(recipe.needles.amplitude == 1);
  CHECK(recipe.question.tokens == 40);
  CHECK(recipe.needles.noise == 0.5);
  // Three needles with three queries for each key phrase and one for values use 10 of the 12 queries.
  trace::Recipe three;
  three.task.needles = 3;
  three.question.tokens = 12;
  const AblationFile less("less: {takes_away: x, set: {question.value_queries: 4}}\n");
  CHECK_THAT(error_of([&] { ablate(read_ablations(less.path()).at(0), three); }),
             Catch::Contains("a.yaml:1:28") && Catch::Contains("the needles need 13 queries"));
}

TEST_CASE("errors in an ablation name their location") {
  using Catch::Contains;
  const std::string begin = "one: {takes_away: x, ";
  CHECK_THAT(
      refusal(begin + "set: {needles.amplitud: 1}}\n"),
      Contains("a.yaml:1:28") && Contains("needles.amplitud") && Contains("known: ") && Contains("needles.amplitude"));
  CHECK_THAT(refusal(begin + "set: {amplitude: 1}}\n"), Contains("a.yaml:1:28"));
  CHECK_THAT(refusal(begin + "set: {needles.amplitude: 11}}\n"),
             Contains("a.yaml:1:") && Contains("needles.amplitude"));
  CHECK_THAT(refusal(begin + "set: {needles.amplitude: one}}\n"), Contains("a.yaml:1:"));
  CHECK_THAT(refusal(begin + "set: {decoys.queries: 1.5}}\n"), Contains("a.yaml:1:"));
  // The shares of the kinds of heads belong to the replay; the definition of the task belongs to the task.
  CHECK_THAT(refusal(begin + "set: {heads.retrieval: 1}}\n"), Contains("no key \"heads.retrieval\" that can be set"));
  CHECK_THAT(refusal(begin + "set: {task.needles: 2}}\n"), Contains("no key \"task.needles\" that can be set"));
  CHECK_THAT(refusal(begin + "set: {heads.most_share: 0.1}}\n"), Contains("most_share is below least_share"));
  CHECK_THAT(refusal("one: {takes_away: x}\n"), Contains("a.yaml:1:") && Contains("nothing away"));
  CHECK_THAT(refusal(begin + "set: {decoys.queries: 20}}\n"), Contains("recipes have these values anyway"));
  CHECK_THAT(refusal(begin + "set: [1]}\n"), Contains("a.yaml:1:27"));
  CHECK_THAT(refusal("one: {set: {needles.amplitude: 1}}\n"), Contains("takes_away"));
  CHECK_THAT(refusal(begin + "sets: {needles.amplitude: 1}}\n"), Contains("sets"));
  CHECK_THAT(refusal("all: {takes_away: x, set: {needles.amplitude: 1}}\n"), Contains("a.yaml:1:1"));
  CHECK_THAT(refusal("[1]\n"), Contains("a.yaml:1:1"));
  CHECK_THAT(error_of([] { read_ablations("no such file"); }), Contains("no such file"));
}

TEST_CASE("an ablation file with any letter of a key misspelt is rejected") {
  const std::string text = "one: {takes_away: x, set: {needles.amplitude: 1}, scales_rope: false}\n";
  CHECK(read_ablations(AblationFile(text).path()).size() == 1);
  for (const std::string key : {"takes_away", "set", "needles.amplitude", "scales_rope"}) {
    for (std::size_t i = 0; i < key.size(); ++i) {
      std::string broken = text;
      broken[text.find(key + ":") + i] = '9';
      CAPTURE(broken);
      CHECK_THROWS_AS(read_ablations(AblationFile(broken).path()), UserError);
    }
  }
}

TEST_CASE("the project's own ablations are valid and apply to every recipe used for scores") {
  const std::vector<Ablation> all = read_ablations(config::find_config("accuracy", "ablations", {}));
  CHECK(all.size() >= 10);
  CHECK(choose_ablations(all, "all").size() == all.size());
  CHECK(choose_ablations(all, "no-decoys").at(0).name == "no-decoys");
  CHECK_THAT(error_of([&] { choose_ablations(all, "no-decoy"); }), Catch::Contains("known: all, "));
  const Catalogue catalogue;
  for (const Ablation& ablation : all) {
    CAPTURE(ablation.name);
    for (const char* benchmark : {"RULER", "NIAH", "LongBench", "SCBench"}) {
      for (const auto& [name, task] : catalogue.tasks(benchmark)) {
        for (const TaskPart& part : parts_of(task, true)) {
          CAPTURE(part.task.recipe);
          trace::Recipe recipe = trace::read_recipe(trace::find_recipe(part.task.recipe));
          CHECK_NOTHROW(ablate(ablation, recipe));
        }
      }
    }
  }
}

Cell cell(const char* method, const char* budget, double published, double predicted) {
  Cell c;
  c.row.method = method, c.row.budget = budget, c.row.value = published;
  c.predicted = predicted;
  return c;
}

TEST_CASE("an ablation's effect equals the one worked out by hand") {
  ScoreComparison whole, without;
  whole.cells = {cell("A", "512", 10, 20), cell("A", "512", 30, 40), cell("A", "1024", 80, 90),
                 cell("B", "512", 50, 50), cell("B", "1024", 60, 60)};
  without.cells = {cell("A", "512", 10, 10), cell("A", "512", 30, 20), cell("A", "1024", 80, 90),
                   cell("B", "512", 50, 56), cell("B", "1024", 60, 0)};
  without.cells[4].refused = "why";
  const nlohmann::json r = ablation_report({"x", "y", {}, true}, whole, without);
  CHECK(r["n"] == 4);
  CHECK(r["refused"] == 1);
  CHECK(r["mae"].get<double>() == Approx((0 + 10 + 10 + 6) / 4.0));
  CHECK(r["kendall"] == 1.0);
  CHECK(r["name"] == "x");
  // A: 20 to 10, 40 to 20, 90 stays: −30 over three cells. B's second cell does not count.
  CHECK(r["methods"]["A"]["shift"].get<double>() == Approx(-10));
  CHECK(r["methods"]["B"]["shift"].get<double>() == Approx(6));
  const nlohmann::json curve = r["methods"]["A"]["curve"];
  REQUIRE(curve.size() == 2);  // 512 before 1024
  CHECK(curve[0] ==
        nlohmann::json{{"budget", "512"}, {"n", 2}, {"published", 20.0}, {"predicted", 30.0}, {"ablated", 15.0}});
  CHECK(curve[1]["budget"] == "1024");
  CHECK(r["methods"]["B"]["curve"].size() == 1);
}

TEST_CASE("an ablation reaches the replay") {
  const TraceRequest trace{"niah", "llama-3.1-8b", 2048, 4, 1};
  const config::PolicyChoice policy = config::read_policy(config::parse_yaml("{name: snapkv, budget: 64}", "test"));
  const auto mass = [&](const score::RecipeChange& change) {
    RecallReplays samples("", 1, change);
    samples.request(trace, policy);
    samples.run([](std::int64_t, std::int64_t) {});
    double full = 0;
    for (const replay::StepRecall& step : samples.recall(trace, policy).steps) full += step.full;
    return full;
  };
  const AblationFile file(
      "small: {takes_away: x, set: {needles.amplitude: 0.3}}\n"
      "unscaled: {takes_away: x, scales_rope: false}\n");
  const std::vector<Ablation> all = read_ablations(file.path());
  const double whole = mass({});
  CHECK(mass(change_of(all[0])) < whole / 2);  // needles a quarter as long attract less
  CHECK(mass(change_of(all[1])) != whole);     // Llama 3.1 scales its embedding
}

TEST_CASE("a prompt too short for its task has no score and does not affect other scores") {
  const TraceRequest short_prompt{"ruler-vt", "llama-3.1-8b", 48, 4, 1}, prompt{"niah", "llama-3.1-8b", 1024, 4, 1};
  const config::PolicyChoice policy = config::read_policy(config::parse_yaml("{name: snapkv, budget: 64}", "test"));
  RecallReplays samples("", 1);
  samples.request(short_prompt, policy);
  samples.request(prompt, policy);
  int done = 0;
  samples.run([&](std::int64_t, std::int64_t total) {
    ++done;
    CHECK(total == 2);
  });
  CHECK(done == 2);
  CHECK_THAT(error_of([&] { samples.recall(short_prompt, policy); }), Catch::Contains("too short for the task"));
  CHECK(samples.recall(prompt, policy).steps.size() == 4);
}

}  // namespace
}  // namespace kvcast::tests
