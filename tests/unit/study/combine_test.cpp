// Results on several traces combined into one; each expected number is derived by hand.
#include "study/combine.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "result/metric.hpp"
#include "value_of.hpp"

namespace kvcast::tests {
namespace {

using result::Effect;
using result::Result;
using result::Status;
using simulate::Effects;

// 90th percentile of Student's t, from a table: for 1, 2 and 3 degrees of freedom.
constexpr double kT1 = 3.0777, kT2 = 1.8856;

constexpr auto kGemm = static_cast<std::size_t>(graph::Kind::kGemm);
constexpr auto kCopyIn = static_cast<std::size_t>(graph::Kind::kCopyIn);

// A step that spends a quarter of its time on waiting for copies.
Result on_trace(double step, double prefill) {
  Result r;
  r.subject.batch = 4;
  result::Experiment& e = r.experiment;
  e.tpot_mean_s = step, e.tpot_p50_s = 0.9 * step, e.tpot_p99_s = 1.5 * step, e.ttft_s = prefill;
  e.tokens_per_s = 4 / step;
  e.step.exposed[kGemm] = 0.75 * step, e.step.exposed[kCopyIn] = 0.25 * step, e.step.hidden[kCopyIn] = step;
  e.step.bound[0] = step, e.step.origin[0] = step, e.step.uncertain[kGemm] = 0.1 * step;
  e.prefill.exposed[kGemm] = prefill;
  e.traffic.h2d = 1e9 * step;
  e.hbm = {100, 10 * step, {{"weights", 10 * step}}};
  e.engine_ops = 7, e.engine_events = 9, e.engine_wall_s = 2;
  r.accuracy.recall_mass_mean = step, r.accuracy.recall_mass_p10 = step / 2;
  r.wall_s = 3;
  return r;
}

Interval interval_of(const Result& r, const char* path) {
  return result::interval(r, *result::find_metric(path)).value();
}

Effect effect_on_step(const std::string& source, double longer) {
  Effect effect{source, {source}, {}, {}};
  effect.longer.step = longer, effect.shorter.step = 1 / longer;
  return effect;
}

const Effect* find(const Result& r, const std::string& source) {
  for (const Effect& e : r.experiment.effects) {
    if (e.source == source) return &e;
  }
  return nullptr;
}

TEST_CASE("times, traffic, parts and proxies are means, and throughput follows from the mean step") {
  Result first = on_trace(0.1, 2), second = on_trace(0.3, 4);
  second.accuracy.prompt_density = 0.5;
  first.accuracy.origin = Origin::kExact, second.accuracy.origin = Origin::kAssumed;
  const Result r = study::combine({first, second}, Effects::kNone);
  CHECK(r.status == Status::kOk);
  CHECK(value_of(r, "decode.tpot_s.mean") == Approx(0.2));
  CHECK(value_of(r, "decode.tpot_s.p50") == Approx(0.18));
  CHECK(value_of(r, "decode.tpot_s.p99") == Approx(0.3));
  CHECK(value_of(r, "decode.tokens_per_s") == Approx(20));  // 4 / 0.2, not the mean of 40 and 13.3
  CHECK(value_of(r, "prefill.ttft_s") == Approx(3));
  CHECK(value_of(r, "traffic.h2d_bytes") == Approx(2e8));
  CHECK(value_of(r, "transfer.exposed_s") == Approx(0.05));  // a quarter of 0.2
  CHECK(value_of(r, "transfer.hidden_s") == Approx(0.2));
  CHECK(r.experiment.step.total() == Approx(0.2));
  CHECK(r.experiment.step.bound[0] == Approx(0.2));
  CHECK(r.experiment.step.origin[0] == Approx(0.2));
  CHECK(r.experiment.step.uncertain[kGemm] == Approx(0.02));
  CHECK(r.experiment.prefill.total() == Approx(3));
  CHECK(value_of(r, "accuracy.recall_mass_mean") == Approx(0.2));
  CHECK(value_of(r, "accuracy.recall_mass_p10") == Approx(0.1));
  CHECK(value_of(r, "accuracy.prompt_density") == Approx(0.5));  // from the one that has it
  CHECK(r.accuracy.origin == Origin::kAssumed);
  CHECK(r.experiment.effects.empty());
}

TEST_CASE("memory is the largest peak with its owners, and the work of simulating is summed") {
  const Result r = study::combine({on_trace(0.3, 2), on_trace(0.1, 4)}, Effects::kNone);
  CHECK(r.experiment.hbm.peak == Approx(3));
  CHECK(r.experiment.hbm.capacity == Approx(100));
  REQUIRE(r.experiment.hbm.owners.size() == 1);
  CHECK(r.experiment.hbm.owners[0].bytes == Approx(3));
  CHECK(r.experiment.engine_ops == 14);
  CHECK(r.experiment.engine_events == 18);
  CHECK(r.experiment.engine_wall_s == Approx(4));
  CHECK(r.wall_s == Approx(6));
}

TEST_CASE("a run does not fit if it does not fit on one of its traces") {
  Result oom = on_trace(0.5, 3);
  oom.status = Status::kOom;
  oom.experiment.oom = result::OutOfMemory{"hbm", "prefill", 1, 2, 3, {}, "activations"};
  oom.experiment.tpot_mean_s = oom.experiment.ttft_s = 0, oom.experiment.step = {}, oom.experiment.prefill = {};
  const Result r = study::combine({on_trace(0.1, 2), oom, on_trace(0.3, 4)}, Effects::kTimes);
  CHECK(r.status == Status::kOom);
  REQUIRE(r.experiment.oom);
  CHECK(r.experiment.oom->requested_for == "activations");
  CHECK_FALSE(result::value(r, *result::find_metric("decode.tpot_s.mean")));
  CHECK(r.experiment.hbm.peak == Approx(5));
  CHECK(value_of(r, "accuracy.recall_mass_mean") == Approx(0.3));  // mean of 0.1, 0.5 and 0.3: it takes no memory
  CHECK(r.experiment.effects.empty());
}

TEST_CASE("the effect of a source is the ratio of the mean shifted time to the mean time") {
  Result first = on_trace(0.1, 1), second = on_trace(0.3, 1);
  first.experiment.effects = {effect_on_step("a", 1.5), effect_on_step("b", 1.2)};
  second.experiment.effects = {effect_on_step("b", 1.4)};
  const Result r = study::combine({first, second}, Effects::kTimes);
  REQUIRE(find(r, "a") != nullptr);
  CHECK(find(r, "a")->longer.step == Approx((0.15 + 0.3) / 0.4));  // too small on the second trace to be listed there
  CHECK(find(r, "a")->shorter.step == Approx((0.1 / 1.5 + 0.3) / 0.4));
  CHECK(find(r, "b")->longer.step == Approx((0.12 + 0.42) / 0.4));
  CHECK(find(r, "b")->keys == std::vector<std::string>{"b"});
  CHECK(find(r, "b")->longer.prefill == Approx(1));
}

TEST_CASE("parts of a shifted time are means of the traces' parts") {
  Result first = on_trace(0.1, 1);
  const Result second = on_trace(0.3, 1);
  first.experiment.effects = {effect_on_step("a", 2)};
  first.experiment.effects[0].longer.step_parts.emplace().exposed[kGemm] = 0.2;
  const Result r = study::combine({first, second}, Effects::kDetailed);
  REQUIRE(find(r, "a") != nullptr);
  REQUIRE(find(r, "a")->longer.step_parts);
  // Kernels take 0.2 on the first trace; the second one has 0.225 of kernels and 0.075 of copies, as without the shift.
  CHECK(find(r, "a")->longer.step_parts->exposed[kGemm] == Approx(0.2125));
  CHECK(find(r, "a")->longer.step_parts->exposed[kCopyIn] == Approx(0.0375));
  CHECK_FALSE(find(r, "a")->shorter.step_parts);
}

TEST_CASE("the interval is a prediction interval for one more text") {
  const Result r = study::combine({on_trace(0.1, 2), on_trace(0.4, 2)}, Effects::kTimes);
  // Logarithms: their mean is ln 0.2, and each is ln 2 away from it, so that s = ln 2 · sqrt(2).
  const double off = kT1 * std::log(2.0) * std::sqrt(2.0) * std::sqrt(1 + 1.0 / 2);
  const Interval step = interval_of(r, "decode.tpot_s.mean");
  CHECK(step.low == Approx(0.2 * std::exp(-off)).epsilon(1e-3));
  CHECK(step.high == Approx(0.2 * std::exp(off)).epsilon(1e-3));
  const Interval rate = interval_of(r, "decode.tokens_per_s");
  CHECK(rate.low == Approx(4 / step.high));
  CHECK(rate.high == Approx(4 / step.low));
  const Interval prefill = interval_of(r, "prefill.ttft_s");  // both traces take equally long
  CHECK(prefill.low == Approx(2));
  CHECK(prefill.high == Approx(2));
  CHECK(find(r, result::kTraceSample)->keys == std::vector<std::string>{result::kTraceSample});
}

TEST_CASE("bytes and shares that differ between texts have the interval of one more text") {
  std::vector<Result> traces = {on_trace(0.1, 1), on_trace(0.1, 1), on_trace(0.1, 1)};
  for (std::size_t i = 0; i < traces.size(); ++i) {
    traces[i].experiment.traffic.h2d = 100 << i;  // 100, 200, 400: ln 2 is the standard deviation of the logarithms
    traces[i].experiment.traffic.hbm_read = 7;
    traces[i].accuracy.recall_mass_mean = 0.8 + 0.1 * static_cast<double>(i);
    traces[i].accuracy.output_error_mean = 0.1 * static_cast<double>(i);
  }
  Result r = study::combine(traces, Effects::kNone);
  const double off = kT2 * std::sqrt(4.0 / 3);
  CHECK(interval_of(r, "traffic.h2d_bytes").low == Approx(200 * std::pow(2, -off)).epsilon(1e-4));
  CHECK(interval_of(r, "traffic.h2d_bytes").high == Approx(200 * std::pow(2, off)).epsilon(1e-4));
  CHECK(interval_of(r, "accuracy.recall_mass_mean").low == Approx(0.9 - 0.1 * off).epsilon(1e-4));
  CHECK(interval_of(r, "accuracy.recall_mass_mean").high == 1);  // no share is above 1
  CHECK(interval_of(r, "accuracy.output_error_mean").low == 0);  // nor below
  CHECK_FALSE(result::interval(r, *result::find_metric("traffic.hbm_read_bytes")));

  // Bytes follow from shapes alone if no text changes the policy's work.
  const result::Metric& read = *result::find_metric("traffic.hbm_read_bytes");
  CHECK(result::origin(r, read) == Origin::kExact);
  r.experiment.effects = {effect_on_step(result::kTraceSample, 1.1)};
  CHECK(result::origin(r, read) == Origin::kAssumed);
}

TEST_CASE("steps and prefill have their own intervals, and three traces a smaller t") {
  const Result r = study::combine({on_trace(0.1, 1), on_trace(0.1, 2), on_trace(0.1, 4)}, Effects::kTimes);
  CHECK(interval_of(r, "decode.tpot_s.mean").high == Approx(0.1));
  // The logarithms differ from ln 2 by −ln 2, 0 and ln 2: s = ln 2.
  const double off = kT2 * std::log(2.0) * std::sqrt(1 + 1.0 / 3);
  CHECK(value_of(r, "prefill.ttft_s") == Approx(7.0 / 3));
  CHECK(interval_of(r, "prefill.ttft_s").low == Approx(2 * std::exp(-off)).epsilon(1e-3));
  CHECK(interval_of(r, "prefill.ttft_s").high == Approx(2 * std::exp(off)).epsilon(1e-3));
}

TEST_CASE("the spread within traces is added in quadrature, and remains if the traces agree") {
  Result first = on_trace(0.2, 2), second = on_trace(0.2, 2);
  first.experiment.effects = {effect_on_step(result::kTraceSample, std::exp(0.1))};
  second.experiment.effects = {effect_on_step(result::kTraceSample, std::exp(0.3))};
  const Result same = study::combine({first, second}, Effects::kTimes);
  CHECK(interval_of(same, "decode.tpot_s.mean").high == Approx(0.2 * std::exp(0.2)));
  CHECK(interval_of(same, "decode.tpot_s.mean").low == Approx(0.2 * std::exp(-0.2)));
  first.experiment.tpot_mean_s = 0.1, second.experiment.tpot_mean_s = 0.4;
  const Result apart = study::combine({first, second}, Effects::kTimes);
  const double between = kT1 * std::log(2.0) * std::sqrt(3.0);
  CHECK(interval_of(apart, "decode.tpot_s.mean").high ==
        Approx(0.2 * std::exp(std::hypot(between, 0.2))).epsilon(1e-3));
  CHECK(apart.experiment.effects.size() == 1);
  CHECK(study::combine({on_trace(0.2, 2), on_trace(0.2, 2)}, Effects::kTimes).experiment.effects.empty());
}

TEST_CASE("a longer step has the parts of the slowest trace, a shorter one those of the fastest") {
  Result fast = on_trace(0.1, 1), slow = on_trace(0.2, 1);
  slow.experiment.step.exposed[kGemm] = 0.05, slow.experiment.step.exposed[kCopyIn] = 0.15;
  const Result r = study::combine({fast, slow}, Effects::kDetailed);
  const Effect* const effect = find(r, result::kTraceSample);
  REQUIRE(effect != nullptr);
  REQUIRE((effect->longer.step_parts && effect->shorter.step_parts));
  CHECK_FALSE(effect->longer.prefill_parts);
  const Result longer = shifted(r, result::kTraceSample, result::Direction::kLonger);
  CHECK(longer.experiment.step.total() == Approx(longer.experiment.tpot_mean_s));
  CHECK(longer.experiment.step.exposed[kCopyIn] == Approx(0.75 * longer.experiment.tpot_mean_s));
  const Result shorter = shifted(r, result::kTraceSample, result::Direction::kShorter);
  CHECK(shorter.experiment.step.exposed[kCopyIn] == Approx(0.25 * shorter.experiment.tpot_mean_s));
  CHECK(shorter.experiment.tpot_mean_s < 0.1);
}

result::TaskScore score(const char* task, double share, double half_width, int steps) {
  result::TaskScore s;
  s.task = task, s.known = true, s.share_of_full = share, s.steps = steps;
  s.interval = {share - half_width, share + half_width};
  s.recall_mean = share, s.recall_min = share / 2, s.other_recall = 0.5;
  return s;
}

TEST_CASE("a task score is the mean over traces with tasks, with the interval of the mean over all texts") {
  Result first = on_trace(0.1, 1), second = on_trace(0.1, 1);
  const Result without = on_trace(0.1, 1);
  first.accuracy.task = score("niah", 0.52, 0.02, 4), second.accuracy.task = score("qa", 0.48, 0.04, 6);
  second.accuracy.task->known = false;
  const Result r = study::combine({first, without, second}, Effects::kNone);
  REQUIRE(r.accuracy.task);
  const result::TaskScore& task = *r.accuracy.task;
  CHECK(task.task == "niah, qa");
  CHECK_FALSE(task.known);
  CHECK(task.share_of_full == Approx(0.5));
  CHECK(task.steps == 10);
  CHECK(task.recall_mean == Approx(0.5));
  CHECK(task.recall_min == Approx(0.24));
  CHECK(task.other_recall == Approx(0.5));
  // Each score is 0.02 from the mean: s = 0.02 · sqrt(2), over sqrt(2) traces; the scores' own half-widths have a mean
  // of 0.03.
  const double off = std::hypot(kT1 * 0.02, 0.03);
  CHECK(task.interval.low == Approx(0.5 - off).epsilon(1e-3));
  CHECK(task.interval.high == Approx(0.5 + off).epsilon(1e-3));

  second.accuracy.task = score("niah", 1, 0, 6), first.accuracy.task = score("niah", 0, 0, 4);
  const Result far = study::combine({first, second}, Effects::kNone);
  CHECK(far.accuracy.task->task == "niah");
  CHECK(far.accuracy.task->interval.low == 0);  // a share is between 0 and 1
  CHECK(far.accuracy.task->interval.high == 1);
  CHECK(study::combine({first, without}, Effects::kNone).accuracy.task->interval.high == 0);
  CHECK_FALSE(study::combine({without, without}, Effects::kNone).accuracy.task);
}

TEST_CASE("a result on one trace is unchanged") {
  Result only = on_trace(0.1, 2);
  only.experiment.tokens_per_s = 41;  // not derived from the step
  only.experiment.effects = {effect_on_step("a", 1.5), effect_on_step(result::kTraceSample, 1.3)};
  const Result r = study::combine({only}, Effects::kTimes);
  CHECK(r.experiment.tokens_per_s == 41);
  REQUIRE(r.experiment.effects.size() == 2);
  CHECK(r.experiment.effects[1].longer.step == 1.3);
}

}  // namespace
}  // namespace kvcast::tests
