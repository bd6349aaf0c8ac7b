// Pipelines of two workers: their predicted times computed by hand, and the judgement of measured ones.
#include "validate/cpu_pipeline.hpp"

#include <catch2/catch.hpp>

#include "base/whole_file.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace validate;

namespace {

// Rates of 1 byte per second for everything, no hand-over time, and no interference between the workers.
double step(Scheme scheme, double moved, double together = 1, double hand_over = 0) {
  return predict_step({.scheme = scheme,
                       .layers = 3,
                       .before = 2,
                       .attention = 3,
                       .after = 5,
                       .moved = moved,
                       .together = together,
                       .hand_over = hand_over});
}

}  // namespace

TEST_CASE("dense work alone takes the sum of its parts") {
  for (const Scheme scheme : {Scheme::kSpeculative, Scheme::kBlocking, Scheme::kCpu}) {
    CHECK(step(scheme, 0) == Approx(3 * (2 + 3 + 5)));
  }
}

TEST_CASE("a blocking recall is fully exposed") { CHECK(step(Scheme::kBlocking, 4) == Approx(3 * (2 + 4 + 3 + 5))); }

TEST_CASE("a speculative recall is hidden until the second worker is the slower one") {
  // A recall may take until its layer is reached again, so that some steps pass before a slow worker delays the first
  // one. Three recalls of 4 s are hidden in a step of 30 s; three of 11 s take 33 s per step.
  CHECK(step(Scheme::kSpeculative, 4) == Approx(30));
  CHECK(step(Scheme::kSpeculative, 11) == Approx(33));
}

TEST_CASE("attention on the CPU is hidden only by the static attention") {
  CHECK(step(Scheme::kCpu, 1) == Approx(30));
  CHECK(step(Scheme::kCpu, 7) == Approx(3 * (2 + 7 + 5)));
}

TEST_CASE("two workers that share a resource slow each other down while both are busy") {
  // Both run 3 s of work at half speed, 6 s; then the second has 4 s left and runs them alone.
  CHECK(step(Scheme::kCpu, 7, 0.5) == Approx(3 * (2 + 6 + 4 + 5)));
}

TEST_CASE("a hand-over costs its time in each direction") {
  CHECK(step(Scheme::kBlocking, 4, 1, 0.25) == Approx(3 * (2 + 0.25 + 4 + 0.25 + 3 + 5)));
}

TEST_CASE("the start of an op is added to its bytes over the rate") {
  CHECK(predict_step({.scheme = Scheme::kBlocking,
                      .layers = 1,
                      .before = 2,
                      .attention = 3,
                      .after = 5,
                      .moved = 4,
                      .first = {.start = 1, .bytes_per_s = 2},
                      .second = {.start = 7, .bytes_per_s = 4}}) == Approx((3 * 1 + (2 + 3 + 5) / 2.0) + 7 + 4 / 4.0));
}

TEST_CASE("measured pipelines are judged by steps and by exposed transfers") {
  // The prediction: 2 + 4 + 3 + 5 = 14 s, of which the dense work alone is 10 s. The first row's step is 5 % longer and
  // its exposed time 4.7 s for 4 s; the second is a row that was not measured.
  const kvcast::TemporaryDirectory folder;
  const std::string results = folder.path() + "/results.json";
  kvcast::write_whole_file(results, R"({"schema": "kvcast-kernels/1", "environment": {}, "rows": [
    {"bench": "cpu_overlap", "mode": "batch", "axes": {"scheme": "blocking", "moved": 4, "layers": 1}, "n": 3,
     "time_s": {"median": 14.7}, "noise": 0.02, "skip_reason": null,
     "work": {"before_bytes": 2, "attention_bytes": 3, "after_bytes": 5, "first_start_s": 0, "first_bytes_per_s": 1,
              "second_start_s": 0, "second_bytes_per_s": 1, "together": 1, "hand_over_s": 0, "alone_s": 10}},
    {"bench": "cpu_overlap", "mode": "batch", "axes": {"scheme": "cpu", "moved": 4, "layers": 1}, "n": 0,
     "time_s": null, "skip_reason": "other programs took the cores away", "work": {}}]})");
  const Suite suite = cpu_pipeline(results);
  REQUIRE(suite.cases.size() == 2);
  CHECK(suite.cases[0].predicted.value() == Approx(14e3));
  CHECK(suite.cases[0].verdict == Verdict::kAgrees);
  CHECK(suite.cases[1].expected.value() == Approx(4.7e3));
  CHECK(suite.cases[1].predicted.value() == Approx(4e3));
  REQUIRE(suite.budgets.size() == 2);
  CHECK(suite.budgets[0].value.value() == Approx(100 * 0.7 / 14.7));
  CHECK(suite.budgets[1].value.value() == Approx(100 * 0.7 / 4.7));
  CHECK(cpu_pipeline("").status.find("cpu_overlap") != std::string::npos);
}

}  // namespace kvcast::tests
