// Short windows and effects from one pass over a schedule, compared with slow methods that use neither: long windows of
// consecutive steps, and, for every policy, the whole experiment repeated under shifted costs.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>

#include "base/interval.hpp"
#include "base/quantile.hpp"
#include "config/left_out.hpp"
#include "engine/engine.hpp"
#include "oracle/experiment/policies.hpp"
#include "simulate/schedule.hpp"
#include "support/run_experiment.hpp"

namespace kvcast::tests {
namespace {

using config::Framework;

// Machines and launches at which GPU, link or host are the bottleneck.
const std::vector<std::pair<std::string, Framework::Launch>>& places() {
  static const std::vector<std::pair<std::string, Framework::Launch>> all = {
      {"a100-40gb-pcie4", Framework::Launch::kCudaGraph},
      {"h100-sxm", Framework::Launch::kEager},
      {"rtx-4090", Framework::Launch::kCompiled}};
  return all;
}

template <class Body>
void for_all_policies(const Body& body) {
  for (const auto& [machine, launch] : places()) {
    const Cases cases(machine, launch);
    for (const auto& one : cases.all()) {
      INFO(one->name << " on " << machine);
      body(*one);
    }
  }
}

// At every context, ten measured steps after ten others, each with one more cached token.
struct LongWindows {
  double mean = 0, p50 = 0, p99 = 0;
};

LongWindows long_windows(const Case& one) {
  constexpr int kWarmup = 10, kMeasured = 10;
  const hardware::CostModel model(one.run.hardware, one.run.framework);
  replay::Draw draw = simulate::draw_counts(one.input());
  const lower::DecodeSetting setting = simulate::decode_setting(one.input(), draw);
  const std::int64_t first = one.run.workload.prompt_tokens + 1, last = first + one.run.workload.decode_tokens - 1;
  LongWindows out;
  std::vector<double> all;
  for (const auto& [at, weight] :
       {std::pair(first, 1.0 / 6), std::pair((first + last + 1) / 2, 4.0 / 6), std::pair(last, 1.0 / 6)}) {
    lower::DecodeWindow window(setting, std::max(first, at - kWarmup - (kMeasured - 1) / 2), kWarmup + kMeasured);
    lower::Works works;
    const lower::FlatStream stream = lower::flatten(window, works);
    simulate::CostTable costs(works, model);
    simulate::TimedSource source(stream, costs);
    simulate::Recorder recorder(source, stream.blocks.size());
    engine::run(simulate::make_system(model), source, &recorder);
    std::vector<double> steps;
    for (std::size_t s = kWarmup; s < stream.blocks.size(); ++s) {
      steps.push_back(to_seconds(recorder.block_ends()[s] - recorder.start_of(s)));
    }
    out.mean += weight * mean(steps);
    all.insert(all.end(), steps.begin(), steps.end());
  }
  out.p50 = quantile(all, 0.5), out.p99 = quantile(all, 0.99);
  return out;
}

double width(const Interval& i) { return i.high - i.low; }

}  // namespace

TEST_CASE("short windows give the step times of long ones") {
  for_all_policies([](const Case& one) {
    const simulate::Experiment e = run_experiment(one.input(), {});
    const LongWindows slow = long_windows(one);
    CHECK(e.tpot_mean_s == Approx(slow.mean).epsilon(0.005));
    CHECK(e.tpot_p50_s == Approx(slow.p50).epsilon(0.005));
    // The last steps of a long window are a few tokens beyond the last context, where a kernel may have one tile more.
    CHECK(e.tpot_p99_s == Approx(slow.p99).epsilon(0.05));
  });
}

TEST_CASE("a backlog of recalls builds up before steps are measured") {
  const Cases cases("a100-40gb-pcie4", Framework::Launch::kCudaGraph);
  for (const auto& one : cases.all()) {
    if (one->name != "freekv") continue;
    // Without corrections no op waits for a recall before the next step.
    for (replay::LayerCounts& layer : one->replay.layers) {
      for (policy::HeadCounts& head : layer.counts) head.corrected = false;
    }
    std::vector<double>&calls = one->run.hardware.link.issue_call.y, &starts = one->run.hardware.link.engine_piece.y;
    double& turn = one->run.hardware.link.engine_turn.value;
    const std::vector<double> as_is = calls, starts_as_is = starts;
    const double turn_as_is = turn;
    int unsettled = 0;
    for (const double factor : {0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5}) {
      INFO(factor);
      for (std::size_t i = 0; i < calls.size(); ++i) calls[i] = factor * as_is[i];
      for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = factor * starts_as_is[i];
      turn = factor * turn_as_is;
      CHECK(run_experiment(one->input(), {}).tpot_mean_s == Approx(long_windows(*one).mean).epsilon(0.005));
      const simulate::Lowered lowered = simulate::lower_experiment(one->input(), {});
      unsettled += simulate::simulate(lowered, one->run.hardware, {}).unsettled ? 1 : 0;
    }
    CHECK(unsettled > 0);  // otherwise the calls above do not cover this case
  }
}

TEST_CASE("a schedule without shifts equals the recorded one") {
  for_all_policies([](const Case& one) {
    const simulate::Lowered lowered = simulate::lower_experiment(one.input(), {});
    const hardware::CostModel model(one.run.hardware, one.run.framework);
    simulate::CostTable costs(lowered.works, model);
    const engine::System system = simulate::make_system(model);
    const lower::FlatStream& steps = lowered.contexts[lowered.middle].stream;
    // All blocks are recorded, then all from the second on, so that some ops wait for ops that are not recorded.
    for (const auto& [stream, from] : {std::pair(&*lowered.prefill, 0), {&steps, 0}, {&steps, 1}}) {
      simulate::TimedSource source(*stream, costs);
      simulate::Recorder recorder(source, static_cast<std::size_t>(from));
      engine::run(system, source, &recorder);
      const simulate::Schedule schedule(recorder, source);
      const simulate::Schedule::Times times = schedule.shifted({}, {});
      std::size_t different = 0;
      for (std::size_t i = 0; i < recorder.records().size(); ++i) {
        const engine::Record& r = recorder.records()[i];
        const bool same =
            times.starts[i][0] == static_cast<double>(r.start) && times.finishes[i][0] == static_cast<double>(r.finish);
        different += same ? 0 : 1;
      }
      CHECK(recorder.records().size() > 0);
      CHECK(different == 0);
    }
  });
}

TEST_CASE("effects from one pass give the intervals of repeated experiments") {
  for_all_policies([](const Case& one) {
    const simulate::Lowered lowered = simulate::lower_experiment(one.input(), {});
    simulate::ExperimentOptions options;
    options.effects = simulate::Effects::kTimes;
    const simulate::Experiment e = simulate::simulate(lowered, one.run.hardware, options);
    // Eager frameworks keep only a share of each effect, as simulate::simulate() narrows it.
    const bool eager = one.run.framework.launch == Framework::Launch::kEager;
    const double share = eager ? config::left_out().eager_costs : 1.0;
    FactorSpread step, prefill, step_again, prefill_again;
    for (const result::Effect& effect : e.effects) {
      // The sample of the trace and the omissions of the model are not costs that can be shifted.
      if (effect.source == result::kTraceSample || effect.keys.front() == effect.source) continue;
      std::array<double, 2> steps{}, prefills{};
      for (const int sign : {1, -1}) {
        simulate::ExperimentOptions again;
        again.shift = {effect.source, static_cast<double>(sign)};
        const simulate::Experiment shifted = simulate::simulate(lowered, one.run.hardware, again);
        const std::size_t i = sign > 0 ? 0 : 1;
        steps[i] = std::pow(shifted.tpot_mean_s / e.tpot_mean_s, share);
        prefills[i] = std::pow(shifted.ttft_s / e.ttft_s, share);
      }
      step.add(std::array{effect.longer.step, effect.shorter.step});
      prefill.add(std::array{effect.longer.prefill, effect.shorter.prefill});
      step_again.add(steps), prefill_again.add(prefills);
    }
    REQUIRE(!e.effects.empty());
    const Interval fast = step.interval(1), slow = step_again.interval(1);
    CHECK(fast.low == Approx(slow.low).margin(0.1 * width(slow)));
    CHECK(fast.high == Approx(slow.high).margin(0.1 * width(slow)));
    const Interval fast_prefill = prefill.interval(1), slow_prefill = prefill_again.interval(1);
    CHECK(fast_prefill.low == Approx(slow_prefill.low).margin(0.1 * width(slow_prefill)));
    CHECK(fast_prefill.high == Approx(slow_prefill.high).margin(0.1 * width(slow_prefill)));
  });
}

TEST_CASE("detailed effects state the parts of the shifted times") {
  for_all_policies([](const Case& one) {
    simulate::ExperimentOptions options;
    options.effects = simulate::Effects::kDetailed;
    const simulate::Experiment e = run_experiment(one.input(), options);
    REQUIRE(!e.effects.empty());
    for (const result::Effect& effect : e.effects) {
      INFO(effect.source);
      CHECK(!effect.keys.empty());
      for (const result::ShiftedTimes* times : {&effect.longer, &effect.shorter}) {
        if (times->step_parts) CHECK(times->step_parts->total() == Approx(e.step.total() * times->step).epsilon(1e-6));
        if (times->prefill_parts)
          CHECK(times->prefill_parts->total() == Approx(e.ttft_s * times->prefill).epsilon(1e-6));
        CHECK((times->step_parts || times->prefill_parts));
      }
    }
  });
}

}  // namespace kvcast::tests
