// Throughput of a queue: requests of about 1K tokens and 150 outputs, Poisson arrivals near what the engine sustains.
//
//   serving_bench [--benchmark_min_time=2]
//
// requests_per_s: served requests a second. passes_per_s: passes of the simulated engine a second; runs_per_s: runs of
// passes that are composed. "single passes" leaves out the closed form.
#include <benchmark/benchmark.h>

#include <ctime>
#include <string>

#include "base/system_memory.hpp"
#include "support/serving.hpp"

namespace {

using namespace kvcast;
using namespace kvcast::serving;

// CPU time of this thread, which other programs on the machine do not add to.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Counter final : QueueObserver {
  std::int64_t passes = 0, runs = 0, preemptions = 0;
  void ended(const Departure& outcome) override { preemptions += outcome.preemptions; }
  void ran(const Passes& run) override {
    passes += run.count;
    ++runs;
  }
};

void serve_many(benchmark::State& state, Rules rules, double rate) {
  constexpr std::int64_t kRequests = 100'000;
  std::int64_t passes = 0, runs = 0, preemptions = 0;
  double seconds = 0;
  for (auto _ : state) {
    const Stream lengths(7);
    tests::PoissonRequests source(rate, kRequests, 3, [&](std::uint64_t i) {
      return std::pair<std::int64_t, std::int64_t>(512 + lengths.below(2 * i, 1024),
                                                   50 + lengths.below(2 * i + 1, 200));
    });
    tests::LinearTimes times = tests::step_times();
    Counter counter;
    const double begin = cpu_seconds();
    serve(source, times, rules, tests::full_cache(rules.block), counter);
    const double taken = cpu_seconds() - begin;
    state.SetIterationTime(taken);
    seconds += taken;
    passes += counter.passes;
    runs += counter.runs;
    preemptions += counter.preemptions;
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["requests_per_s"] = static_cast<double>(kRequests) * iterations / seconds;
  state.counters["passes_per_s"] = static_cast<double>(passes) / seconds;
  state.counters["runs_per_s"] = static_cast<double>(runs) / seconds;
  state.counters["passes_per_request"] = static_cast<double>(passes) / iterations / kRequests;
  state.counters["preemptions"] = static_cast<double>(preemptions) / iterations;
}

void add(const std::string& name, const Rules& rules, double rate) {
  benchmark::RegisterBenchmark(name.c_str(), serve_many, rules, rate)->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::keep_freed_memory();
  for (const Engine engine : {Engine::kVllmV1, Engine::kVllmV0, Engine::kSglang, Engine::kTrtllm, Engine::kStatic}) {
    Rules rules = Rules::of(engine);
    rules.max_num_seqs = 256;
    rules.blocks = 400'000 / rules.block;
    add(std::string(config::scheduler_name(engine)), rules, 20);
  }
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.blocks = 25'000;
  add(
      "vllm-v1, one pass in flight",
      [&] {
        Rules one = rules;
        one.in_flight = 1;
        return one;
      }(),
      20);
  add(
      "vllm-v1, no prefix cache",
      [&] {
        Rules one = rules;
        one.prefix_caching = false;
        return one;
      }(),
      20);
  add(
      "vllm-v1, single passes",
      [&] {
        Rules one = rules;
        one.skip = false;
        return one;
      }(),
      20);
  add("vllm-v1, light load", rules, 4);
  add(
      "vllm-v1, light load, single passes",
      [&] {
        Rules one = rules;
        one.skip = false;
        return one;
      }(),
      4);
  add("vllm-v1, overload", rules, 40);
  rules.blocks = 3'000;
  add("vllm-v1, little memory", rules, 20);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
