// The score of one replay, by hand.
#include "score/task_score.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace kvcast::tests {

using namespace score;

namespace {

TEST_CASE("a step finds no more than a sparse prompt kept") {
  const ScoreModel model;
  replay::ReplayResult replayed;
  replayed.prompt_tokens = 1000, replayed.task = "a task of nobody";
  replayed.targets.steps = {{1, 1.0, 1.0, 1.0}};  // all tokens that it needs are in the cache
  replayed.targets.retrieving = 1;
  replayed.layers.emplace_back();
  const auto dense = task_score(model, replayed);
  REQUIRE(dense.has_value());
  CHECK(dense->share_of_full == 1);
  replayed.layers.front().prompt = {true, .25, .4};
  const auto sparse = task_score(model, replayed);
  CHECK(sparse->recall_mean == Approx(.4));
  CHECK(sparse->share_of_full == Approx(1 - std::pow(.6, model.link.kappa.value)));
  CHECK(sparse->interval.high == Approx(dense->interval.high));
}

TEST_CASE("targets to which no head attends have a reason instead of a score") {
  const ScoreModel model;
  replay::ReplayResult replayed;
  replayed.prompt_tokens = 1000;
  replayed.targets.steps = {{1, 1e-6, 1e-9, 1e-6}};
  CHECK_FALSE(task_score(model, replayed).has_value());
  CHECK_THAT(why_no_score(replayed), Catch::Contains("attends to the targets"));
  replayed.targets.retrieving = 1;
  CHECK(task_score(model, replayed).has_value());
  CHECK(why_no_score(replayed).empty());
  replayed.targets = {};
  CHECK_FALSE(task_score(model, replayed).has_value());
  CHECK(why_no_score(replayed).empty());
}

}  // namespace
}  // namespace kvcast::tests
