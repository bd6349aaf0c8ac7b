// Effects of uncertain costs on a recorded time: they equal those of a machine with such costs.
#include "simulate/effects.hpp"

#include <catch2/catch.hpp>

#include "simulate/index_build.hpp"
#include "support/select.hpp"
#include "unit/hardware/round_machine.hpp"

namespace kvcast::tests {

namespace {

// Operators launched one by one, whose calls on the host have an uncertainty of a half.
config::Run eager_run(double call) {
  config::Run run;
  run.hardware = round_machine();
  run.hardware.host.eager_op = {call, Origin::kAssumed, 0.5, "calls"};
  run.framework.launch = config::Framework::Launch::kEager;
  run.model.layers = 4, run.model.hidden = 64, run.model.n_q_heads = 8, run.model.n_kv_heads = 4;
  run.model.head_dim = 100, run.model.ffn = 128, run.model.vocab = 1000;
  run.workload.prompt_tokens = 1040, run.workload.decode_tokens = 10, run.workload.batch = 1;
  return run;
}

double build_seconds(const config::Run& run) {
  const auto policy = make("ctkvr", "budget: 10, centroids: 2, sink: 8, recent: 8", {1040, 10});
  return simulate::build_index(run, *policy, 4).seconds;
}

std::vector<result::Effect> effects(const config::Run& run) {
  const auto policy = make("ctkvr", "budget: 10, centroids: 2, sink: 8, recent: 8", {1040, 10});
  return simulate::build_index(run, *policy, 4, true).effects;
}

const result::Effect* effect_of(const std::vector<result::Effect>& list, const std::string& source) {
  for (const result::Effect& effect : list) {
    if (effect.source == source) return &effect;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("the time under shifted costs is that of a machine with such costs") {
  for (const double call : {3e-6, 10e-6, 40e-6}) {  // hidden by the kernels, about equally long, the bottleneck
    INFO(call);
    const std::vector<result::Effect> list = effects(eager_run(call));
    const result::Effect* calls = effect_of(list, "calls");
    REQUIRE(calls != nullptr);
    CHECK(calls->keys == std::vector<std::string>{"host.eager_op"});
    const double as_is = build_seconds(eager_run(call));
    CHECK(calls->longer.build == Approx(build_seconds(eager_run(1.5 * call)) / as_is));
    CHECK(calls->shorter.build == Approx(build_seconds(eager_run(0.5 * call)) / as_is));
    // The parts of the shifted time add up to it.
    REQUIRE(calls->longer.build_parts);
    CHECK(calls->longer.build_parts->total() == Approx(as_is * calls->longer.build));
  }
}

TEST_CASE("a source without an effect on the time is omitted") {
  // A few operators of 1 ns: their uncertainty is far below a per cent of microseconds.
  const std::vector<result::Effect> list = effects(eager_run(1e-9));
  CHECK(effect_of(list, "calls") == nullptr);
  CHECK(effect_of(list, "made up") != nullptr);
}

}  // namespace kvcast::tests
