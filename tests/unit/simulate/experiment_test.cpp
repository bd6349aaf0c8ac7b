// Decoding sampled at a few contexts: the measured steps, their weights and the peak memory. A full cache of 3
// sequences and 4 layers of 2 KV heads with 16 numbers has 3 · 4 · 2 · 2 · 16 · 2 = 1536 bytes per token of context,
// read by each step.
#include "simulate/experiment.hpp"

#include <catch2/catch.hpp>

#include "lower/dense.hpp"
#include "support/run_experiment.hpp"
#include "support/select.hpp"
#include "unit/hardware/round_machine.hpp"

namespace kvcast::tests {

using simulate::Experiment;

namespace {

constexpr double kTokenBytes = 1536;

config::Run run_of(std::int64_t prompt, std::int64_t generated, int contexts) {
  config::Run run;
  run.hardware = round_machine();
  run.model.layers = 4, run.model.hidden = 64, run.model.n_q_heads = 4, run.model.n_kv_heads = 2;
  run.model.head_dim = 16, run.model.ffn = 128, run.model.vocab = 1000;
  run.workload.prompt_tokens = prompt, run.workload.decode_tokens = generated, run.workload.batch = 3;
  run.framework.sampled_contexts = contexts;
  run.framework.warmup_steps = 0, run.framework.measured_steps = 1;
  return run;
}

replay::ReplayResult full_replay() {
  replay::ReplayResult replay;
  replay.prompt_tokens = 990, replay.decode_steps = 10, replay.growth = {.attended = 1};
  // Each step attends to all of its tokens.
  for (int layer = 0; layer < 4; ++layer) {
    replay::LayerCounts& counts = replay.layers.emplace_back();
    counts.layer = layer, counts.heads = 2;
    for (int i = 0; i < 10 * 2; ++i) counts.counts.push_back({.attended = 991 + i / 2});
  }
  return replay;
}

Experiment decode(const config::Run& run) {
  const replay::ReplayResult replay = full_replay();
  const auto policy = make("full", "", {run.workload.prompt_tokens, run.workload.decode_tokens});
  simulate::ExperimentOptions options;
  options.prefill = false;
  return run_experiment({&run, policy.get(), &replay}, options);
}

// A single step with this many cached tokens.
Experiment step_at(std::int64_t context) { return decode(run_of(context - 1, 1, 1)); }
double seconds_at(std::int64_t context) { return step_at(context).tpot_mean_s; }

}  // namespace

TEST_CASE("a step reads all pairs of its context") {
  CHECK(step_at(1001).traffic.kv_read == kTokenBytes * 1001);
  CHECK(step_at(5001).traffic.kv_read == kTokenBytes * 5001);
  CHECK(seconds_at(5001) > seconds_at(1001));
}

TEST_CASE("odd numbers of contexts are integrated by Simpson's rule, even ones by the trapezoidal rule") {
  // Tokens 1001 to 5001 are sampled at both ends and in the middle.
  const Experiment three = decode(run_of(1000, 4001, 3));
  CHECK(three.tpot_mean_s == Approx((seconds_at(1001) + 4 * seconds_at(3001) + seconds_at(5001)) / 6).epsilon(1e-12));
  CHECK(three.traffic.kv_read == Approx(kTokenBytes * 3001));
  CHECK(three.tpot_p50_s == Approx(seconds_at(3001)).epsilon(1e-12));
  CHECK(three.tokens_per_s == Approx(3 / three.tpot_mean_s));
  // Five contexts have weights of 1, 4, 2, 4 and 1 twelfths.
  const double inner = 4 * seconds_at(2001) + 2 * seconds_at(3001) + 4 * seconds_at(4001);
  CHECK(decode(run_of(1000, 4001, 5)).tpot_mean_s ==
        Approx((seconds_at(1001) + inner + seconds_at(5001)) / 12).epsilon(1e-12));
  // The two inner ones of four contexts count twice.
  CHECK(decode(run_of(1000, 3001, 4)).tpot_mean_s ==
        Approx((seconds_at(1001) + 2 * seconds_at(2001) + 2 * seconds_at(3001) + seconds_at(4001)) / 6).epsilon(1e-12));
}

TEST_CASE("the parts of a step add up to its mean time even if only the last steps are attributed") {
  for (const int contexts : {1, 3}) {
    config::Run run = run_of(1000, 4001, contexts);
    run.framework.measured_steps = 8;
    const Experiment e = decode(run);
    CHECK(e.step.total() == Approx(e.tpot_mean_s).epsilon(1e-12));
  }
}

TEST_CASE("a prompt of many seconds is read at the rate that the board sustains") {
  // 4 · 4 heads · 16 numbers · 10⁶ · 10⁶ / 2 pairs · 4 layers at half of 100 TFLOP/s are 10.2 s of attention, and other
  // work is negligible.
  config::Run run = run_of(1'000'000, 1, 1);
  run.workload.batch = 1;
  const auto policy = make("full", "", {1'000'000, 1});
  simulate::ExperimentOptions options;
  options.decode = false;
  const replay::ReplayResult replay = full_replay();
  const auto seconds = [&] { return run_experiment({&run, policy.get(), &replay}, options).ttft_s; };
  const double fast = seconds();
  CHECK(fast == Approx(10.2).epsilon(0.1));
  run.hardware.gpu.sustained_rate.value = 0.5;
  CHECK(seconds() / fast == Approx(2).epsilon(0.1));
}

TEST_CASE("no more contexts are sampled than tokens are generated") {
  CHECK(decode(run_of(1000, 1, 9)).tpot_mean_s == Approx(seconds_at(1001)).epsilon(1e-12));
}

TEST_CASE("measured steps represent their middle one, and the steps before them are dropped") {
  config::Run run = run_of(1000, 2001, 1);
  run.framework.warmup_steps = 2, run.framework.measured_steps = 3;
  // In the middle of 1001 to 3001, the steps 2000, 2001 and 2002 are measured.
  const Experiment middle = decode(run);
  CHECK(middle.traffic.kv_read == Approx(kTokenBytes * 2001));
  CHECK(middle.tpot_mean_s == Approx(seconds_at(2001)).margin(1e-12));  // whole picoseconds
  // The first token and the last one have their own contexts, however many steps are measured.
  run.framework.sampled_contexts = 2;
  CHECK(decode(run).traffic.kv_read == Approx(kTokenBytes * (1001 + 3001) / 2));
}

TEST_CASE("at the peak of decoding the cache contains what the last token attends to") {
  config::Run run = run_of(1000, 4001, 3);
  const double others = run.model.weight_bytes() + lower::activation_bytes(run.model, 3, 3);
  CHECK(decode(run).decode_hbm.peak == Approx(others + kTokenBytes * 5001).epsilon(1e-12));
  // The same holds if only one context, in the middle, is simulated.
  CHECK(decode(run_of(1000, 4001, 1)).decode_hbm.peak == Approx(others + kTokenBytes * 5001).epsilon(1e-12));
  // Steps at 5000 to 5002 are measured there, although decoding ends after the first two.
  run.framework.measured_steps = 3;
  CHECK(decode(run).decode_hbm.peak == Approx(others + kTokenBytes * 5001).epsilon(1e-12));
}

TEST_CASE("the first token is simulated at its own context, however many steps are measured") {
  for (const int measured : {1, 2, 10, 32}) {
    config::Run run = run_of(100, 1, 1);
    run.framework.measured_steps = measured;
    CHECK(decode(run).traffic.kv_read == Approx(kTokenBytes * 101).epsilon(1e-12));
  }
}

TEST_CASE("an allocation that fails during decoding is named and leaves no times") {
  config::Run run = run_of(1000, 1, 1);
  const double weights = run.model.weight_bytes();
  run.hardware.gpu.hbm_reserved = known(0);
  run.hardware.gpu.hbm_capacity = known(weights + 1e5);  // 1001 tokens take 1.5 MB
  const Experiment e = decode(run);
  REQUIRE(e.oom);
  CHECK(e.oom->pool == "hbm");
  CHECK(e.oom->moment == "decode at 1001 tokens");
  CHECK(e.oom->requested == kTokenBytes * 1001);
  CHECK(e.oom->owners.front().owner == "weights");
  CHECK(e.oom->owners.front().bytes == weights);
  // The same holds if the first of two contexts fits.
  run = run_of(1000, 4001, 2);
  run.hardware.gpu.hbm_reserved = known(0);
  run.hardware.gpu.hbm_capacity = known(weights + lower::activation_bytes(run.model, 3, 3) + kTokenBytes * 2000);
  const Experiment later = decode(run);
  REQUIRE(later.oom);
  CHECK(later.oom->moment == "decode at 5001 tokens");
  for (const Experiment& one : {e, later}) {
    CHECK(one.tpot_mean_s == 0);
    CHECK(one.tokens_per_s == 0);
    CHECK(one.traffic.kv_read == 0);
    CHECK(one.step.total() == 0);
  }
}

TEST_CASE("lowering and timing stop on request") {
  const config::Run run = run_of(990, 10, 3);
  const replay::ReplayResult replay = full_replay();
  const auto policy = make("full", "", {990, 10});
  const simulate::ExperimentInput input{&run, policy.get(), &replay};
  std::stop_source stop;
  stop.request_stop();
  simulate::LoweringOptions lowering;
  lowering.cancel = stop.get_token();
  CHECK_THROWS_AS(simulate::lower_experiment(input, lowering), Cancelled);
  const simulate::Lowered lowered = simulate::lower_experiment(input);
  simulate::ExperimentOptions options;
  CHECK_NOTHROW(simulate::simulate(lowered, run.hardware, options));
  options.cancel = stop.get_token();
  CHECK_THROWS_AS(simulate::simulate(lowered, run.hardware, options), Cancelled);
}

}  // namespace kvcast::tests
