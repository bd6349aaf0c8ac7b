// Experiments per second that one core simulates once their replay exists, with uncertainty intervals, by kind of
// policy, and the share of each stage.
//
//   experiment_bench [--benchmark_min_time=2]
//
// cold: lowering included. warm: the same lowered work timed on another machine setting each time (its HBM bandwidth
// changes by a thousandth), as in a sweep over machines. experiments_per_s: by CPU time. Shares are parts of the CPU
// time of a cold experiment: lowering; costing, measured separately as the pricing of all works; the engine's runs of
// the prefill and the contexts less that; attribution with the rest of the simulation; effects with the trace's sample.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>

#include "base/system_memory.hpp"
#include "config/find.hpp"
#include "config/hardware.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"
#include "simulate/cost_table.hpp"
#include "simulate/experiment.hpp"

namespace {

using namespace kvcast;

constexpr std::int64_t kPrompt = 32768, kGenerated = 512;

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Kind {
  const char* name;
  const char* parameters;
  int batch;
  policy::HeadCounts counts;  // about what a replay of the needle recipe gives at this prompt
  int fetched_pages;          // at most: drawn for each head and step
};

const Kind kKinds[] = {
    {"full", "{}", 1, {.attended = kPrompt, .attended_runs = 1}, 0},
    {"quest", "{budget: 2048}", 1, {.attended = 2048, .scored = 2048, .attended_runs = 128}, 0},
    {"freekv",
     "{budget: 2048, sink: 512, recent: 512, page: 32, tau: 0.8}",
     4,
     {.attended = 2048, .scored = 992, .attended_runs = 34},
     16},
    {"ctkvr",
     "{budget: 512, centroids: 128}",
     4,
     {.attended = 640, .cpu_attended = 512, .scored = 512, .candidates = 2400, .attended_runs = 2},
     0},
    {"shadowkv", "{budget: 2048}", 4, {.attended = 2432, .scored = 4096, .candidates = 2048, .attended_runs = 300}, 64},
};

// Counts that differ from head to head and step to step as fetches do; corrections are one in sixteen.
replay::ReplayResult replay_of(const Kind& kind, const policy::Policy& policy, const config::Model& model) {
  replay::ReplayResult replay;
  replay.prompt_tokens = kPrompt, replay.decode_steps = 16, replay.growth = policy.growth({kPrompt, kGenerated});
  replay.proxies.attended_mean = static_cast<double>(kind.counts.attended);
  const Stream stream(1);
  std::uint64_t next = 0;
  for (const int layer : {8, 24}) {
    replay::LayerCounts& counts = replay.layers.emplace_back();
    counts.layer = layer, counts.heads = model.n_kv_heads;
    for (int i = 0; i < replay.decode_steps * counts.heads; ++i) {
      policy::HeadCounts head = kind.counts;
      if (kind.fetched_pages > 0) {
        head.fetched_runs =
            static_cast<std::int64_t>(stream.below(next++, static_cast<std::uint64_t>(kind.fetched_pages)));
        head.fetched = 32 * head.fetched_runs, head.evicted = head.fetched;
        head.corrected = stream.below(next++, 16) == 0;
      }
      counts.counts.push_back(head);
    }
  }
  return replay;
}

struct Input {
  config::Run run;
  std::unique_ptr<policy::Policy> policy;
  replay::ReplayResult replay;
  simulate::ExperimentInput view() const { return {&run, policy.get(), &replay}; }
};

const Input& input_of(const Kind& kind) {
  static std::map<std::string, Input> all;
  Input& input = all[kind.name];
  if (input.policy) return input;
  input.run.model = config::read_model(config::find_config("models", "llama-3.1-8b", {}));
  input.run.hardware = config::read_hardware(config::find_config("hardware", "a100-80gb-sxm", {}));
  input.run.workload.prompt_tokens = kPrompt, input.run.workload.decode_tokens = kGenerated;
  input.run.workload.batch = kind.batch;
  input.policy = policy::make_policy(policy::find_policy(kind.name), config::parse_yaml(kind.parameters, "bench"));
  input.replay = replay_of(kind, *input.policy, input.run.model);
  return input;
}

simulate::ExperimentOptions with_intervals() {
  simulate::ExperimentOptions options;
  options.effects = simulate::Effects::kTimes;
  return options;
}

void cold(benchmark::State& state, const Kind& kind) {
  const Input& input = input_of(kind);
  const hardware::CostModel model(input.run.hardware, input.run.framework);
  double lowering = 0, costing = 0, engine = 0, attribution = 0, effects = 0;
  for (auto _ : state) {
    const double begin = cpu_seconds();
    const simulate::Lowered lowered = simulate::lower_experiment(input.view());
    const double lowered_at = cpu_seconds();
    const simulate::Experiment plain = simulate::simulate(lowered, input.run.hardware, {});
    const double plain_at = cpu_seconds();
    simulate::CostTable costs(lowered.works, model);
    for (lower::WorkId id = 0; id < lowered.works.size(); ++id) benchmark::DoNotOptimize(costs[id].latency);
    const double priced_at = cpu_seconds();
    const simulate::Experiment e = simulate::simulate(lowered, input.run.hardware, with_intervals());
    const double end = cpu_seconds();
    if (e.oom) state.SkipWithError("does not fit in memory");
    lowering += lowered_at - begin;
    costing += priced_at - plain_at;
    engine += plain.engine_wall_s - (priced_at - plain_at);
    attribution += plain_at - lowered_at - plain.engine_wall_s;
    effects += end - priced_at - (plain_at - lowered_at);
  }
  const double total = lowering + costing + engine + attribution + effects;
  state.counters["experiments_per_s"] = static_cast<double>(state.iterations()) / total;
  state.counters["lowering"] = lowering / total;
  state.counters["costing"] = costing / total;
  state.counters["engine"] = engine / total;
  state.counters["attribution"] = attribution / total;
  state.counters["effects"] = effects / total;
}

void warm(benchmark::State& state, const Kind& kind) {
  const Input& input = input_of(kind);
  const simulate::Lowered lowered = simulate::lower_experiment(input.view());
  config::Hardware machine = input.run.hardware;
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
  state.counters["experiments_per_s"] = static_cast<double>(state.iterations()) / total;
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::keep_freed_memory();
  for (const Kind& kind : kKinds) {
    benchmark::RegisterBenchmark((std::string("cold/") + kind.name).c_str(), [&kind](benchmark::State& s) {
      cold(s, kind);
    })->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((std::string("warm/") + kind.name).c_str(), [&kind](benchmark::State& s) {
      warm(s, kind);
    })->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
