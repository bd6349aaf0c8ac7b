// How long the replay of one layer takes, by policy, on one core: 16 decode steps of Llama-3.1-8B's heads (32 query
// heads on 8 KV heads of 128). Work that depends on the layer alone is done before the clock starts and shown on its
// own.
//
//   replay_bench [--benchmark_filter=131072]
//
// prepare: scores, softmax, outputs and ranks of full attention. begin: index and prompt-end work of the policy.
// replay: all of its selections with counts and proxies, the begin included.
#include <benchmark/benchmark.h>

#include "base/random.hpp"
#include "config/yaml.hpp"
#include "replay/replay.hpp"

namespace {

using namespace kvcast;

class NormalTrace final : public trace::Trace {
 public:
  explicit NormalTrace(std::int64_t prompt) {
    info_.model = "bench", info_.source = "synthetic";
    info_.layers = {0}, info_.n_layers = 1;
    info_.n_q_heads = 32, info_.n_kv_heads = 8, info_.head_dim = 128;
    info_.prompt_tokens = prompt, info_.decode_steps = 16;
    for (std::int64_t i = prompt - 64; i < prompt + 16; ++i) info_.query_positions.push_back(i);
  }
  std::unique_ptr<trace::Layer> load(std::size_t, int) const override {
    auto layer = std::make_unique<trace::Layer>(info_, 0);
    const auto fill = [&](float* out, std::int64_t rows, std::uint64_t kind, int head) {
      const Stream stream = Stream(1).child({kind, static_cast<std::uint64_t>(head)});
      stream.normals(0, static_cast<std::uint64_t>(rows * info_.head_dim), out);
    };
    for (int h = 0; h < info_.n_kv_heads; ++h) fill(layer->mutable_keys(h), info_.positions(), 1, h);
    for (int h = 0; h < info_.n_kv_heads; ++h) fill(layer->mutable_values(h), info_.positions(), 2, h);
    for (int h = 0; h < info_.n_q_heads; ++h) fill(layer->mutable_queries(h), info_.n_queries(), 3, h);
    return layer;
  }
  std::string identity() const override { return "bench"; }
};

std::unique_ptr<policy::Policy> make(const char* name, const char* parameters, std::int64_t prompt) {
  return policy::make_policy(policy::find_policy(name), config::parse_yaml(parameters, name), {prompt, 16});
}

// One context at a time is kept: a layer of 131072 tokens is 1.4 GB with its scores.
const std::vector<std::unique_ptr<replay::Oracle>>& layers_of(std::int64_t prompt) {
  static std::int64_t held = 0;
  static std::unique_ptr<NormalTrace> trace;
  static std::vector<std::unique_ptr<replay::Oracle>> layers;
  if (held != prompt) {
    layers.clear();
    trace = std::make_unique<NormalTrace>(prompt);
    layers = replay::prepare(*trace, 1);
    held = prompt;
  }
  return layers;
}

void prepare(benchmark::State& state) {
  const NormalTrace trace(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    auto layer = trace.load(0, 1);
    state.ResumeTiming();
    benchmark::DoNotOptimize(replay::Oracle(std::move(layer), 1).log_sum_exp(0, 0));
  }
}

void replay_policy(benchmark::State& state, const char* name, const char* parameters) {
  const auto& layers = layers_of(state.range(0));
  const auto policy = make(name, parameters, state.range(0));
  benchmark::DoNotOptimize(policy->selector(layers[0]->input()));  // what policies share stands ready
  for (auto _ : state) benchmark::DoNotOptimize(replay::replay(layers, *policy).proxies.recall_mass_mean);
}

void begin_policy(benchmark::State& state, const char* name, const char* parameters) {
  const auto& layers = layers_of(state.range(0));
  const auto policy = make(name, parameters, state.range(0));
  for (auto _ : state) {
    const policy::LayerInput fresh(layers[0]->layer());
    benchmark::DoNotOptimize(policy->selector(fresh));
  }
}

struct Case {
  const char* name;
  const char* parameters;
};
constexpr Case kCases[] = {{"full", "{}"},
                           {"exact_topk", "{budget: 2048}"},
                           {"streaming_llm", "{budget: 2048}"},
                           {"snapkv", "{budget: 2048}"},
                           {"quest", "{budget: 2048}"},
                           {"hsa", "{budget: 1024}"},
                           {"rocketkv", "{budget: 1024}"},
                           {"arkvale", "{budget: 2048}"},
                           {"freekv", "{budget: 2048, sink: 512, recent: 512}"}};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const std::int64_t prompt : {32768, 131072}) {
    benchmark::RegisterBenchmark("prepare", prepare)->Arg(prompt)->Unit(benchmark::kMillisecond);
    for (const Case& c : kCases) {
      const auto add = [&](const char* what, auto run) {
        const std::string name = std::string(what) + "/" + c.name;
        benchmark::RegisterBenchmark(name.c_str(), run, c.name, c.parameters)
            ->Arg(prompt)
            ->Unit(benchmark::kMillisecond);
      };
      add("begin", begin_policy);
      add("replay", replay_policy);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
