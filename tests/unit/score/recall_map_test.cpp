// The score model, from recall to task scores, compared with values computed by hand.
#include "score/recall_map.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace score;

namespace {

// Steps of full mass 1 that keep these shares; a negative share means a step without targets.
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

RecallMap link_of(double kappa) {
  RecallMap link;
  link.kappa = {kappa, kappa, kappa};
  return link;
}

TEST_CASE("an exact answer needs every token") {
  // A step with half of its mass yields its token with probability 1 − 0.5² = 3/4 at κ = 2.
  CHECK(share_of_full(link_of(2), task_of(Score::kExact, 2), sample_of({0.5, 0.5})) == Approx(0.75 * 0.75));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 2), sample_of({1, 0.25})) == Approx(0.25));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 3), sample_of({1, 1, 1})) == 1);
}

TEST_CASE("replayed steps represent all steps of an answer") {
  // Two of five tokens are replayed: the first counts once, the second represents the four others.
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 5), sample_of({0.5, 0.9})) == Approx(0.5 * std::pow(0.9, 4)));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1), sample_of({0.5})) == Approx(0.5));
}

TEST_CASE("an answer depends on those before it") {
  // Two answers of one step, separated by free steps: the mean of 1/2 and 1/2 · 1/2.
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1), sample_of({0.5, -1, 0.5})) == Approx((0.5 + 0.25) / 2));
  // Answers count independently in an overlap score.
  CHECK(share_of_full(link_of(1), task_of(Score::kOverlap, 1), sample_of({0.5, -1, 0.25})) == Approx(0.375));
}

TEST_CASE("the floor is reached without finding anything") {
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1, 0.4), sample_of({0})) == Approx(0.4));
  CHECK(share_of_full(link_of(1), task_of(Score::kExact, 1, 0.4), sample_of({0.5})) == Approx(0.4 + 0.6 * 0.5));
}

TEST_CASE("a text goes astray if the model sees little of what it wrote") {
  RecallMap link = link_of(1);
  link.astray = {0.2, 0.2, 0.2};
  link.writers = {2, 2, 2};
  const auto reading = [](double share, double written, double read) {
    Sample sample = sample_of({share}, written);
    sample.recall.other_kept = read, sample.recall.other_full = 1;
    return sample;
  };
  // Half of the text is seen and a fifth of the rest is read: the model is lost with probability 0.8 · 0.5² = 0.2, and
  // a token leads on with probability 1 − 0.2 · 0.2 = 0.96.
  const Sample some = reading(1, 0.5, 0.2);
  CHECK(share_of_full(link, task_of(Score::kOverlap, 3), some) == Approx(0.8 * (1 + 0.96 + 0.96 * 0.96) / 3));
  CHECK(share_of_full(link, task_of(Score::kExact, 3), some) == Approx(0.8 * 0.96 * 0.96));
  // Answers known without finding anything must also be written.
  CHECK(share_of_full(link, task_of(Score::kOverlap, 2, 0.4), reading(0, 0.5, 0.2)) == Approx(0.8 * 0.4 * 1.96 / 2));
  // A single token cannot lead the model astray, but a lost model does not find it.
  CHECK(share_of_full(link, task_of(Score::kOverlap, 1), reading(1, 0, 0.7)) == Approx(0.7));
  // A high value of either share is enough.
  CHECK(share_of_full(link, task_of(Score::kOverlap, 500), reading(1, 1, 0.1)) == 1);
  CHECK(share_of_full(link, task_of(Score::kOverlap, 500), reading(1, 0.1, 1)) == 1);
}

TEST_CASE("a word is recognised by its occurrences") {
  Sample sample = sample_of({1});
  sample.recall.steps[0].targets = 6;
  sample.recall.steps[0].tokens = 3;  // of six occurrences in a prompt of 1000 tokens
  RecallMap link;
  link.places = {1.5, 1.5, 1.5};
  // Even the full model, which sees all six, is not certain of the word.
  CHECK(share_of_full(link, task_of(Score::kCount, 1), sample) == Approx((1 - std::exp(-2.0)) / (1 - std::exp(-4.0))));
}

TEST_CASE("more recall never lowers the prediction, and full recall predicts the full score") {
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

TEST_CASE("an interval contains its prediction and grows with each uncertainty") {
  RecallMap link = link_of(1);
  const TaskSpec task = task_of(Score::kExact, 1);
  const std::vector<Sample> same = {sample_of({0.5}), sample_of({0.5})}, apart = {sample_of({0.2}), sample_of({0.8})};
  const SharePrediction sharp = predict(link, task, same, 100);
  CHECK(sharp.share == Approx(0.5));
  CHECK(sharp.high == Approx(0.5));
  // Two samples are 0.3 from their mean: their variance is 0.18, that of the mean 0.09.
  const SharePrediction spread = predict(link, task, apart, 100);
  CHECK(spread.share == Approx(0.5));
  CHECK(spread.high == Approx(0.8));
  CHECK(spread.low == Approx(0.2));
  link.residual_middle = 10;  // 10 points are a fifth of a full score of 50
  CHECK(predict(link, task, same, 50).high == Approx(0.7));
  link.kappa = {1, 1, 2};  // 1 − 0.5² = 0.75
  CHECK(predict(link, task, same, 50).high == Approx(0.95));
}

TEST_CASE("a task with parts is their weighted mean, each over its own samples") {
  const RecallMap link = link_of(1);
  const TaskSpec task = task_of(Score::kExact, 1);
  const std::vector<TaskPart> parts = {{task, 0.2, false}, {task, 0.8, true}};
  std::vector<Sample> samples = {sample_of({0.9}), sample_of({0.4}), sample_of({0.2})};
  samples[1].part = samples[2].part = 1;
  CHECK(share_of_full(link, parts, samples) == Approx(0.2 * 0.9 + 0.8 * 0.3));
  // Only the second part has a spread: two samples 0.1 from their mean, so that the mean is known to ±0.1, with a
  // weight of 0.8.
  const SharePrediction p = predict(link, parts, samples, 100);
  CHECK(p.share == Approx(0.42));
  CHECK(p.high == Approx(0.5));
}

TEST_CASE("a task can be the product of its parts") {
  const RecallMap link = link_of(1);
  const TaskSpec task = task_of(Score::kExact, 1);
  const std::vector<TaskPart> parts = {{task, 1, false, true}, {task, 1, false, true}};
  std::vector<Sample> samples = {sample_of({0.5}), sample_of({0.9}), sample_of({0.7})};
  samples[1].part = samples[2].part = 1;
  CHECK(share_of_full(link, parts, samples) == Approx(0.5 * 0.8));
  // The second part's mean is known to ±0.1, which the first part halves.
  CHECK(predict(link, parts, samples, 100).high == Approx(0.4 + 0.5 * 0.1));
}

TEST_CASE("one of several attempts must be right") {
  TaskSpec task = task_of(Score::kExact, 1);
  task.attempts = 2;
  task.attempt = 0.5;
  // The full model solves 1 − 0.5² = 3/4 of what it finds at all; half of that probability gives 1 − 0.75² = 7/16, a
  // share of 7/12.
  CHECK(share_of_full(link_of(1), task, sample_of({0.5})) == Approx(7.0 / 12));
  CHECK(share_of_full(link_of(1), task, sample_of({1})) == Approx(1));
  CHECK(share_of_full(link_of(1), task, sample_of({0})) == Approx(0).margin(1e-9));
}

TEST_CASE("a score model is read back as written, and invalid files are rejected") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/link.yaml";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_recall_map(path);
  };
  RecallMap link;
  link.kappa = {1.25, 1, 1.5};
  link.writers = {40, 30, 50};
  link.residual_high = 2.5;
  link.source = "a test";
  const RecallMap again = read(write_recall_map(link));
  CHECK(again.kappa.value == 1.25);
  CHECK(again.kappa.high == 1.5);
  CHECK(again.writers.low == 30);
  CHECK(again.residual_high == 2.5);
  CHECK(again.source == "a test");
  const std::string text = write_recall_map(link);
  CHECK_THROWS_AS(read(text + "kapa: 1\n"), UserError);
  CHECK_THROWS_AS(read("source: x\n"), UserError);
  for (std::size_t i = 0; i < text.size(); ++i) {  // a file with one changed byte is read or rejected
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
}  // namespace kvcast::tests
