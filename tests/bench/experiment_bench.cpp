// Experiments per second that one core simulates once their replay exists, with uncertainty intervals, for every
// registered policy at its default parameters, and the share of each stage.
//
//   experiment_bench [--benchmark_min_time=2] [--benchmark_filter=freekv]
//
// cold: lowering included. warm: the same lowered work timed on another machine setting each time (its HBM bandwidth
// changes by a thousandth), as in a sweep over machines. experiments_per_s: by CPU time. events: of an experiment
// without its effects; vs_queue: the time relative to as many events of a bare queue (yardstick.hpp). Shares are parts
// of the CPU time of a cold experiment: lowering; costing, measured separately as the pricing of all works; the
// engine's runs of the prefill and the contexts less that; attribution with the rest of the simulation; effects with
// the trace's sample. Replays are made first, and not timed; a policy that reads all queries of the prompt is replayed
// on a shorter text, and its counts grow with the context as it states. A policy that cannot run in the setting is
// listed with the reason.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/system_memory.hpp"
#include "bench/yardstick.hpp"
#include "policies/all.hpp"
#include "replay/replay.hpp"
#include "simulate/cost_table.hpp"
#include "simulate/experiment.hpp"
#include "study/prepare.hpp"
#include "support/run_experiment.hpp"

namespace {

using namespace kvcast;

constexpr const char* kSetting =
    "model: llama-3.1-8b\n"
    "hardware: a100-80gb-sxm\n"
    "workload: {prompt_tokens: 32768, decode_tokens: 512, batch: 4}\n"
    "trace: {recipe: needle}\n";
constexpr int kWindow = 128;        // last prompt queries that the text has
constexpr int kShortPrompt = 4096;  // of the text that has all of its queries

struct Input {
  std::string refused;  // why the policy cannot run in the setting; empty if it can
  config::Run run;
  std::unique_ptr<policy::Policy> policy;
  replay::ReplayResult replay;
  simulate::ExperimentInput view() const { return {&run, policy.get(), &replay}; }
};

// The layers of the run's text, which all policies that need the same share.
std::span<const std::unique_ptr<replay::Oracle>> layers_of(const config::Run& run, bool whole) {
  struct Text {
    std::unique_ptr<trace::Trace> trace;
    std::vector<std::unique_ptr<replay::Oracle>> layers;
  };
  static std::map<bool, Text> texts;
  Text& text = texts[whole];
  if (!text.trace) text.trace = study::make_trace(run, run.traces[0]), text.layers = replay::prepare(*text.trace, 1);
  return text.layers;
}

Input make_input(const std::string& name) {
  Input input;
  try {
    study::Prepared prepared = study::prepare(config::parse_yaml(kSetting + ("policy: " + name + "\n"), "setting"));
    config::TraceChoice& text = prepared.run.traces[0];
    const bool whole = prepared.needs.whole_prompt || prepared.needs.window > kWindow;
    text.window = whole ? kShortPrompt : kWindow;
    if (whole) text.prompt_tokens = kShortPrompt;
    input.run = prepared.run, input.policy = study::make_policy(prepared);
    input.replay = replay::replay(
        layers_of(input.run, whole), *input.policy,
        {.request = policy::Lengths{input.run.workload.prompt_tokens, input.run.workload.decode_tokens}});
    const auto fits = tests::run_experiment(input.view(), {});
    if (fits.oom) input.refused = "does not fit in memory";
  } catch (const UserError& e) {
    input.refused = e.what();
  }
  return input;
}

const Input& input_of(const std::string& name) {
  static std::map<std::string, Input> all;
  const auto known = all.find(name);
  return known != all.end() ? known->second : all.emplace(name, make_input(name)).first->second;
}

simulate::ExperimentOptions with_intervals() {
  simulate::ExperimentOptions options;
  options.effects = simulate::Effects::kTimes;
  return options;
}

void state_speed(benchmark::State& state, double seconds, std::int64_t events) {
  const auto experiments = static_cast<double>(state.iterations());
  state.counters["experiments_per_s"] = experiments / seconds;
  state.counters["events"] = static_cast<double>(events);
  state.counters["vs_queue"] = seconds / experiments / queue_seconds(events);
}

void cold(benchmark::State& state, const Input& input) {
  const hardware::CostModel model(input.run.hardware, input.run.framework);
  double lowering = 0, costing = 0, engine = 0, attribution = 0, effects = 0;
  std::int64_t events = 0;
  for (auto _ : state) {
    const double begin = cpu_seconds();
    const simulate::Lowered lowered = simulate::lower_experiment(input.view());
    const double lowered_at = cpu_seconds();
    const simulate::Experiment plain = simulate::simulate(lowered, input.run.hardware, {});
    const double plain_at = cpu_seconds();
    simulate::CostTable costs(lowered.works, model);
    for (lower::WorkId id = 0; id < lowered.works.size(); ++id) benchmark::DoNotOptimize(costs[id].latency);
    const double priced_at = cpu_seconds();
    benchmark::DoNotOptimize(simulate::simulate(lowered, input.run.hardware, with_intervals()).tpot_mean_s);
    const double end = cpu_seconds();
    events = plain.engine_events;
    lowering += lowered_at - begin;
    costing += priced_at - plain_at;
    engine += plain.engine_wall_s - (priced_at - plain_at);
    attribution += plain_at - lowered_at - plain.engine_wall_s;
    effects += end - priced_at - (plain_at - lowered_at);
  }
  const double total = lowering + costing + engine + attribution + effects;
  state_speed(state, total, events);
  state.counters["lowering"] = lowering / total;
  state.counters["costing"] = costing / total;
  state.counters["engine"] = engine / total;
  state.counters["attribution"] = attribution / total;
  state.counters["effects"] = effects / total;
}

void warm(benchmark::State& state, const Input& input) {
  const simulate::Lowered lowered = simulate::lower_experiment(input.view());
  config::Hardware machine = input.run.hardware;
  const std::int64_t events = simulate::simulate(lowered, machine, {}).engine_events;
  const double bandwidth = machine.gpu.hbm_bandwidth;
  double total = 0;
  std::int64_t setting = 0;
  for (auto _ : state) {
    machine.gpu.hbm_bandwidth.value = bandwidth * (1 + 0.001 * static_cast<double>(setting++ % 100));
    const double begin = cpu_seconds();
    const simulate::Experiment e = simulate::simulate(lowered, machine, with_intervals());
    benchmark::DoNotOptimize(e.tpot_mean_s);
    total += cpu_seconds() - begin;
  }
  state_speed(state, total, events);
}

void add(const char* kind, const std::string& policy, void (*measure)(benchmark::State&, const Input&)) {
  const auto run = [policy, measure](benchmark::State& state) {
    const Input& input = input_of(policy);
    if (input.refused.empty()) {
      measure(state, input);
    } else {
      state.SkipWithError(input.refused.c_str());
    }
  };
  benchmark::RegisterBenchmark((std::string(kind) + "/" + policy).c_str(), run)->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::keep_freed_memory();
  for (const policy::Descriptor& d : policy::all_policies()) add("cold", d.name, cold), add("warm", d.name, warm);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
