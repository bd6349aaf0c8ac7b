#include "replay/target_recall.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "support/error_of.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

// One KV head of one dimension, two query heads. Keys ln 2 · (1, 0, 2, 0): the first query (1) has the exponentials
// 2, 1, 4, 1 of 8; the second (0) has 1, 1, 1, 1 of 4.
MemoryTrace on_paper() {
  return {TraceShape{.kv_heads = 1, .group = 2, .head_dim = 1, .prompt = 3, .steps = 1, .window = 0},
          [](trace::Layer& layer) {
            const float ln2 = std::log(2.0f);
            const float keys[] = {ln2, 0, 2 * ln2, 0};
            std::copy(std::begin(keys), std::end(keys), layer.mutable_keys(0));
            std::fill_n(layer.mutable_values(0), 4, 1.0f);
            *layer.mutable_queries(0) = 1;
            *layer.mutable_queries(1) = 0;
          }};
}

policy::LayerSelection selection_of(std::vector<std::int32_t> positions) {
  policy::LayerSelection selection;
  selection.reset(1, false);
  selection.heads[0].attended = std::move(positions);
  return selection;
}

// Adds to the logits of one query head.
class Weighing final : public policy::Selector {
 public:
  explicit Weighing(int q_head = -1, std::vector<float> added = {}) : q_head_(q_head), added_(std::move(added)) {}
  void prefill(policy::LayerSelection&) override {}
  void step(int, policy::LayerSelection&) override {}
  std::span<const float> log_weights(int q_head) const override {
    return q_head == q_head_ ? std::span<const float>(added_) : std::span<const float>();
  }

 private:
  int q_head_;
  std::vector<float> added_;
};

TEST_CASE("the recall of targets equals the one worked out by hand") {
  const MemoryTrace trace = on_paper();
  const auto layer = trace.load(0, 1);
  const FullMass full(*layer, {{2, 0}}, 1);
  CHECK(full.target_mass(0, 0) == Approx(6.0 / 8));
  CHECK(full.target_mass(1, 0) == Approx(2.0 / 4));
  TargetMeter meter(full);
  meter.measure(0, selection_of({1, 2}), Weighing());
  const StepRecall& step = meter.result().steps[0];
  CHECK(step.targets == 2);
  CHECK(step.full == Approx(6.0 / 8 + 2.0 / 4));
  CHECK(step.kept == Approx(4.0 / 8 + 1.0 / 4));  // the only target: position 2
  CHECK(step.recall() == Approx(0.75 / 1.25));
  CHECK(step.mean_tokens() == Approx(1));
  CHECK(meter.result().other_full == 0);  // both heads retrieve
  CHECK(meter.result().retrieving == 2);
}

// The tokens are sampled with probabilities 1/2 and 1/4, so the first head's exponentials 1 and 4 count as 2 and 16
// of 18.
TEST_CASE("the recall of a sample follows from its weights and is at most 1") {
  const MemoryTrace trace = on_paper();
  const auto layer = trace.load(0, 1);
  const FullMass full(*layer, {{2, 0}}, 1);
  const auto kept = [&](std::vector<std::int32_t> attended, std::vector<float> added) {
    TargetMeter meter(full);
    meter.measure(0, selection_of(std::move(attended)), Weighing(0, std::move(added)));
    return meter.result().steps[0];
  };
  const float ln2 = std::log(2.0f);
  CHECK(kept({1, 2}, {ln2, 2 * ln2}).kept == Approx(16.0 / 18 + 1.0 / 4));
  CHECK(kept({1, 3}, {ln2, 2 * ln2}).kept == 0);
  CHECK(kept({0, 1, 2, 3}, {0, 0, 0, 0}).recall() == Approx(1));
  // The first head puts all of its attention, 8/8 instead of 6/8, on the two targets if it attends to nothing else; the
  // second head has 2/4, as under full attention.
  CHECK(kept({0, 2}, {0, 0}).kept == Approx(1 + 2.0 / 4));
  CHECK(kept({0, 2}, {0, 0}).recall() == 1);
}

TEST_CASE("attention that is not a number is rejected and does not count as kept") {
  const MemoryTrace trace{TraceShape{.kv_heads = 1, .group = 1, .head_dim = 1, .prompt = 1, .steps = 1, .window = 0},
                          [](trace::Layer& layer) {
                            std::fill_n(layer.mutable_keys(0), 2, std::nanf(""));
                            std::fill_n(layer.mutable_values(0), 2, 1.0f);
                            *layer.mutable_queries(0) = 1;
                          }};
  const auto layer = trace.load(0, 1);
  CHECK_THAT(error_of([&] { FullMass(*layer, {{0}}, 1); }),
             Catch::Contains("step 0 is not a number") && Catch::Contains("query head 0"));
}

TEST_CASE("heads that put little attention on targets are counted separately") {
  const MemoryTrace trace = on_paper();
  const auto layer = trace.load(0, 1);
  const FullMass full(*layer, {{}}, 1);  // no targets: no head retrieves
  TargetMeter meter(full);
  meter.measure(0, selection_of({2, 3}), Weighing());
  CHECK(meter.result().retrieving == 0);
  CHECK(meter.result().other_full == 2);
  CHECK(meter.result().other_kept == Approx(5.0 / 8 + 2.0 / 4));
  CHECK(meter.result().steps[0].recall() == 1);
}

// For the second step's query (1) the exponentials are 1 for the prompt's token, and 2 and 4 for the generated ones.
TEST_CASE("the attended share of generated tokens equals the one worked out by hand") {
  const MemoryTrace trace{TraceShape{.kv_heads = 1, .group = 1, .head_dim = 1, .prompt = 1, .steps = 2, .window = 0},
                          [](trace::Layer& layer) {
                            const float ln2 = std::log(2.0f);
                            const float keys[] = {0, ln2, 2 * ln2};
                            std::copy(std::begin(keys), std::end(keys), layer.mutable_keys(0));
                            std::fill_n(layer.mutable_values(0), 3, 1.0f);
                            std::fill_n(layer.mutable_queries(0), 2, 1.0f);
                          }};
  const auto layer = trace.load(0, 1);
  const FullMass full(*layer, {{}, {}}, 1);
  const auto written = [&](std::vector<std::int32_t> second) {
    TargetMeter meter(full);
    meter.measure(0, selection_of({0}), Weighing());  // no generated token before it: does not count
    meter.measure(1, selection_of(std::move(second)), Weighing());
    return meter.result();
  };
  CHECK(written({0, 2}).written_full == Approx(6.0 / 7));  // the step's own token included
  CHECK(written({0, 2}).written_recall() == Approx(4.0 / 6));
  CHECK(written({0, 1}).written_recall() == Approx(2.0 / 6));
  CHECK(written({0}).written_recall() == 0);
  CHECK(written({1, 2}).written_recall() == Approx(1));
  CHECK(TargetRecall().written_recall() == 1);
}

TEST_CASE("layers are summed, and a file preserves every number") {
  TargetRecall a;
  a.steps = {{1, 0.5, 0.25, 0.5}, {}};
  a.other_kept = 1, a.other_full = 2;
  a.written_kept = 1, a.written_full = 4;
  a.retrieving = 3;
  a += a;
  CHECK(a.retrieving == 6);
  CHECK(a.written_full == 8);
  CHECK(a.steps[0].full == 1);
  CHECK(a.steps[0].kept == 0.5);
  CHECK(a.steps[0].targets == 1);
  const TargetRecall b = target_recall_from(to_json(a));
  CHECK(b.steps[0].tokens == a.steps[0].tokens);
  CHECK(b.other_recall() == 0.5);
  CHECK(b.written_recall() == 0.25);
  CHECK(b.retrieving == 6);
}

}  // namespace
}  // namespace kvcast::tests
