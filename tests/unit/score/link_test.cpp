// The link from recall to scores, by hand.
#include "score/link.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "support/temporary_directory.hpp"

namespace kvcast::score {
namespace {

// Steps of full mass 1 that keep these shares; a negative share: a step without targets.
Sample sample_of(const std::vector<double>& shares, double written = 1) {
  Sample sample;
  sample.context = 1000;
  for (const double share : shares) {
    replay::StepRecall step;
    if (share >= 0) step = {1, 1.0, share, 0};
    sample.recall.steps.push_back(step);
  }
  sample.recall.written_kept = written;
  sample.recall.written_full = 1;
  return sample;
}

TaskSpec task_of(Score score, int answer, double floor = 0) {
  TaskSpec task;
  task.score = score;
  task.answer = answer;
  task.floor = floor;
  return task;
}

Link link_of(double kappa) {
  Link link;
  link.kappa = {kappa, kappa, kappa};
  return link;
}

TEST_CASE("an exact answer needs every token") {
  // κ = 2: a step with half of its mass gives its token with 1 − 0.5² = 3/4.
  CHECK(share_of_full(link_of(2), task_of(Score::kExact, 2), sample_of({0.5, 0.5})) == Approx(0.75 * 0.75));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 2), sample_of({1, 0.25})) == Approx(0.25));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 3), sample_of({1, 1, 1})) == 1);
}

TEST_CASE("replayed steps stand for all steps of an answer") {
  // Five tokens, two replayed: the first once, the second for the four others.
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 5), sample_of({0.5, 0.9})) == Approx(0.5 * std::pow(0.9, 4)));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1), sample_of({0.5})) == Approx(0.5));
}

TEST_CASE("an answer stands on those before it") {
  // Answers of one step, apart by free steps: 1/2, then 1/2 · 1/2; their mean.
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1), sample_of({0.5, -1, 0.5})) == Approx((0.5 + 0.25) / 2));
  // Overlap: each for itself.
  CHECK(share_of_full(link_of(1), task_of(Score::kOverlap, 1), sample_of({0.5, -1, 0.25})) == Approx(0.375));
}

TEST_CASE("the floor is had without finding anything") {
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1, 0.4), sample_of({0})) == Approx(0.4));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1, 0.4), sample_of({0.5})) == Approx(0.4 + 0.6 * 0.5));
}

TEST_CASE("a text goes astray where little sees what was written") {
  Link link = link_of(1);
  link.astray = {0.2, 0.2, 0.2};
  link.writers = {2, 2, 2};
  const auto reading = [](double share, double written, double read) {
    Sample sample = sample_of({share}, written);
    sample.recall.other_kept = read, sample.recall.other_full = 1;
    return sample;
  };
  // Half of it is seen, and a fifth of the rest is read: lost with 0.8 · 0.5² = 0.2, a token leads on with
  // 1 − 0.2 · 0.2 = 0.96.
  const Sample some = reading(1, 0.5, 0.2);
  CHECK(share_of_full(link, task_of(Score::kOverlap, 3), some) == Approx(0.8 * (1 + 0.96 + 0.96 * 0.96) / 3));
  CHECK(share_of_full(link, task_of(Score::kExact, 3), some) == Approx(0.8 * 0.96 * 0.96));
  // Answers known without finding anything must be written, too.
  CHECK(share_of_full(link, task_of(Score::kOverlap, 2, 0.4), reading(0, 0.5, 0.2)) == Approx(0.8 * 0.4 * 1.96 / 2));
  // A single token leads nothing astray, but a model that is lost does not find it.
  CHECK(share_of_full(link, task_of(Score::kOverlap, 1), reading(1, 0, 0.7)) == Approx(0.7));
  // Either is enough.
  CHECK(share_of_full(link, task_of(Score::kOverlap, 500), reading(1, 1, 0.1)) == 1);
  CHECK(share_of_full(link, task_of(Score::kOverlap, 500), reading(1, 0.1, 1)) == 1);
}

TEST_CASE("a word is known by its places") {
  Sample sample = sample_of({1});
  sample.recall.steps[0].targets = 6;
  sample.recall.steps[0].tokens = 3;  // of six places in a prompt of 1000 tokens
  Link link;
  link.places = {1.5, 1.5, 1.5};
  // The full model, which sees all six, does not know the word for certain either.
  CHECK(share_of_full(link, task_of(Score::kCount, 1), sample) == Approx((1 - std::exp(-2.0)) / (1 - std::exp(-4.0))));
}

TEST_CASE("more recall never predicts less, and all of it predicts the full score") {
  for (const Score score : {Score::kExact, Score::kOverlap}) {
    for (const double kappa : {0.5, 1.0, 1.7, 4.0}) {
      double before = -1;
      for (int i = 0; i <= 20; ++i) {
        const double share =
            share_of_full(link_of(kappa), task_of(score, 7, 0.3), sample_of({i / 20.0, i / 20.0, -1, i / 20.0}));
        CHECK(share >= before);
        CHECK(share <= 1);
        before = share;
      }
      CHECK(before == Approx(1));
    }
  }
}

TEST_CASE("an interval holds its prediction and grows with what is uncertain") {
  Link link = link_of(1);
  const TaskSpec task = task_of(Score::kExact, 1);
  const std::vector<Sample> same = {sample_of({0.5}), sample_of({0.5})}, apart = {sample_of({0.2}), sample_of({0.8})};
  const Prediction sharp = predict(link, task, same, 100);
  CHECK(sharp.share == Approx(0.5));
  CHECK(sharp.high == Approx(0.5));
  // Two samples 0.3 from their mean: variance 0.18, of the mean 0.09.
  const Prediction spread = predict(link, task, apart, 100);
  CHECK(spread.share == Approx(0.5));
  CHECK(spread.high == Approx(0.8));
  CHECK(spread.low == Approx(0.2));
  link.residual_middle = 10;  // points of a full score of 50: a fifth
  CHECK(predict(link, task, same, 50).high == Approx(0.7));
  link.kappa = {1, 1, 2};  // 1 − 0.5² = 0.75
  CHECK(predict(link, task, same, 50).high == Approx(0.95));
}

TEST_CASE("a task of parts is their weighted mean, each over its own samples") {
  const Link link = link_of(1);
  const TaskSpec task = task_of(Score::kExact, 1);
  const std::vector<TaskPart> parts = {{task, 0.2, false}, {task, 0.8, true}};
  std::vector<Sample> samples = {sample_of({0.9}), sample_of({0.4}), sample_of({0.2})};
  samples[1].part = samples[2].part = 1;
  CHECK(share_of_full(link, parts, samples) == Approx(0.2 * 0.9 + 0.8 * 0.3));
  // Only the second part has a spread: two samples 0.1 from their mean, of the mean 0.1, of which 0.8 count.
  const Prediction p = predict(link, parts, samples, 100);
  CHECK(p.share == Approx(0.42));
  CHECK(p.high == Approx(0.5));
}

TEST_CASE("a task can be the product of its parts") {
  const Link link = link_of(1);
  const TaskSpec task = task_of(Score::kExact, 1);
  const std::vector<TaskPart> parts = {{task, 1, false, true}, {task, 1, false, true}};
  std::vector<Sample> samples = {sample_of({0.5}), sample_of({0.9}), sample_of({0.7})};
  samples[1].part = samples[2].part = 1;
  CHECK(share_of_full(link, parts, samples) == Approx(0.5 * 0.8));
  // The second part's mean is known to 0.1, which the first one halves.
  CHECK(predict(link, parts, samples, 100).high == Approx(0.4 + 0.5 * 0.1));
}

TEST_CASE("of several attempts one must be right") {
  TaskSpec task = task_of(Score::kExact, 1);
  task.attempts = 2;
  task.attempt = 0.5;
  // The full model: 1 − 0.5² = 3/4 of what it finds at all; with half its chances 1 − 0.75² = 7/16 of it: 7/12.
  CHECK(share_of_full(link_of(1), task, sample_of({0.5})) == Approx(7.0 / 12));
  CHECK(share_of_full(link_of(1), task, sample_of({1})) == Approx(1));
  CHECK(share_of_full(link_of(1), task, sample_of({0})) == Approx(0).margin(1e-9));
}

TEST_CASE("a link is read as it was written, and nothing odd is") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/link.yaml";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_link(path);
  };
  Link link;
  link.kappa = {1.25, 1, 1.5};
  link.writers = {40, 30, 50};
  link.residual_high = 2.5;
  link.source = "a test";
  const Link again = read(write_link(link));
  CHECK(again.kappa.value == 1.25);
  CHECK(again.kappa.high == 1.5);
  CHECK(again.writers.low == 30);
  CHECK(again.residual_high == 2.5);
  CHECK(again.source == "a test");
  const std::string text = write_link(link);
  CHECK_THROWS_AS(read(text + "kapa: 1\n"), UserError);
  CHECK_THROWS_AS(read("source: x\n"), UserError);
  for (std::size_t i = 0; i < text.size(); ++i) {  // a file with one byte changed is read or refused, never more
    for (const char c : {'{', '-', '\n', 'x'}) {
      std::string broken = text;
      broken[i] = c;
      try {
        read(broken);
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::score
