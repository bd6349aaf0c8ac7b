// Duration of the replay of one layer, by policy: 32 decode steps of Llama-3.1-8B's heads (32 query heads on 8 KV heads
// of 128) after a prompt of 32768 tokens, compared with the machine's peak rates, measured in the same run.
//
//   replay_bench [PROMPT_TOKENS] [POLICY ...]
//
// Seconds are of CPU time, so that other programs disturb them little: on n free cores, layers in parallel take an n-th
// of it each. begin: index and prompt-end work of the policy. steps: all of its selections with counts and proxies. The
// last two columns compare these steps with their minimum work on one core: scores of all queries against all keys
// once, at the measured peak of matrix products, and one pass over the keys and these scores, at the measured bandwidth
// of memory; above 100 % a policy does without one or both.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "base/system_memory.hpp"
#include "config/yaml.hpp"
#include "policies/all.hpp"
#include "replay/accuracy.hpp"
#include "replay/replay.hpp"

namespace {

using namespace kvcast;

constexpr int kSteps = 32;
constexpr std::int64_t kWindow = 2048;  // captured prompt queries: CTkvr's centroids

// CPU time of all threads of this process.
double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class NormalTrace final : public trace::Trace {
 public:
  explicit NormalTrace(std::int64_t prompt, int layers) {
    info_.model = "bench", info_.source = "synthetic";
    for (int l = 0; l < layers; ++l) info_.layers.push_back(l);
    info_.n_layers = layers, info_.rope_theta = 500000;
    info_.n_q_heads = 32, info_.n_kv_heads = 8, info_.head_dim = 128;
    info_.prompt_tokens = prompt, info_.decode_steps = kSteps;
    for (std::int64_t i = std::max<std::int64_t>(0, prompt - kWindow); i < prompt + kSteps; ++i)
      info_.query_positions.push_back(i);
  }
  std::string identity() const override { return "bench"; }

 private:
  std::unique_ptr<trace::Layer> make_layer(std::size_t index, int, const Cancel&, trace::LayerStorage) const override {
    auto layer = std::make_unique<trace::Layer>(info_, static_cast<int>(index));
    const auto fill = [&](float* out, std::int64_t rows, std::uint64_t kind, int head) {
      const Stream stream = Stream(index + 1).child({kind, static_cast<std::uint64_t>(head)});
      stream.normals(0, static_cast<std::uint64_t>(rows * info_.head_dim), out);
    };
    for (int h = 0; h < info_.n_kv_heads; ++h) fill(layer->mutable_keys(h), info_.positions(), 1, h);
    for (int h = 0; h < info_.n_kv_heads; ++h) fill(layer->mutable_values(h), info_.positions(), 2, h);
    for (int h = 0; h < info_.n_q_heads; ++h) fill(layer->mutable_queries(h), info_.n_queries(), 3, h);
    return layer;
  }
};

struct Machine {
  double flops = 0, bytes = 0;  // a second of one core
};

// The fastest of several runs of what the replay's own products and passes are made of.
Machine measure() {
  constexpr std::size_t n = 1024, words = 1u << 25;
  const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f), memory(words, 1.0f);
  std::vector<float> out(n * n);
  Machine machine;
  double sum = 0;
  for (int run = 0; run < 8; ++run) {
    double begin = now();
    multiply_transposed({a.data(), n, n, n}, {b.data(), n, n, n}, out.data(), n);
    machine.flops = std::max(machine.flops, 2.0 * n * n * n / (now() - begin));
    begin = now();
    float parts[16] = {};
    for (std::size_t i = 0; i < words; i += 16) {
      for (std::size_t j = 0; j < 16; ++j) parts[j] += memory[i + j];
    }
    for (const float part : parts) sum += static_cast<double>(part);
    machine.bytes = std::max(machine.bytes, 4.0 * words / (now() - begin));
  }
  return sum > 0 ? machine : Machine{};
}

struct Case {
  const char* name;
  const char* parameters;
};
constexpr Case kCases[] = {
    {"full", "{}"},
    {"exact_topk", "{budget: 2048}"},
    {"quest", "{budget: 2048}"},
    {"sparq", "{budget: 2048}"},
    {"loki", "{budget: 2048}"},
    {"hsa", "{budget: 1024}"},
    {"rocketkv", "{budget: 1024}"},
    {"rocketkv_mt", "{budget: 1024}"},
    {"squeezed_attention", "{}"},
    {"arkvale", "{budget: 2048}"},
    {"shadowkv", "{budget: 2048}"},
    {"infinigen", "{}"},
    {"freekv", "{budget: 2048, sink: 512, recent: 512}"},
    {"magicpig", "{}"},
    {"retrieval_attention", "{budget: 1024}"},
    {"retrieval_attention", "{budget: 1024, recall: 0.9}"},
    {"ctkvr", "{centroids: 512}"},
    {"ctkvr", "{centroids: 2048}"},
    {"kivi", "{}"},
    {"kivi", "{selector: {name: quest, budget: 2048}}"},
    {"streaming_llm", "{budget: 2048}"},
    {"snapkv", "{budget: 2048}"},
    {"tova", "{budget: 2048}"},
    {"raas", "{budget: 2048}"},
    {"keyl2norm", "{budget: 2048}"},
    {"keydiff", "{budget: 2048}"},
    {"keydiff", "{budget: 2048, anchor: median}"},
    {"keydiff", "{budget: 2048, anchor: pairwise, metric: euclid}"},
};

bool asked(const Case& c, int argc, char** argv) {
  bool any = argc <= 2;
  for (int i = 2; i < argc; ++i) any = any || std::string(c.name) == argv[i];
  return any;
}

// Begin and steps of the layer.
std::pair<double, double> time_of(const Case& c, const replay::Oracle& oracle) {
  const trace::TraceInfo& info = oracle.info();
  const auto policy = policy::make_policy(policy::find_policy(c.name), config::parse_yaml(c.parameters, c.name));
  double begin = now();
  const policy::LayerInput fresh(oracle.layer());
  const auto selector = policy->selector(fresh);
  policy::LayerSelection selection;
  selector->prefill(selection);
  const double indices = now() - begin;
  begin = now();
  replay::AccuracyMeter meter(oracle);
  std::vector<replay::HeadAccuracy> accuracy;
  for (int t = 0; t < info.decode_steps; ++t) {
    selector->step(t, selection);
    for (policy::HeadSelection& head : selection.heads) policy::count_lists(head);
    meter.measure(t, selection, *selector, accuracy);
  }
  return {indices, now() - begin};
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::keep_freed_memory();
  const std::int64_t prompt = argc > 1 ? std::atoll(argv[1]) : 32768;
  const Machine machine = measure();
  fmt::print("one core: {:.1f} GFLOP/s of matrix products, {:.1f} GB/s of memory, both measured now\n",
             machine.flops * 1e-9, machine.bytes * 1e-9);
  const NormalTrace trace(prompt, 1);
  auto layer = trace.load(0, 1);
  const double begin = now();
  const replay::Oracle oracle(std::move(layer), hardware_threads());
  fmt::print("{} tokens, {} steps, 32 query heads on 8 KV heads of 128; full attention prepared in {:.2f} CPU s\n\n",
             prompt, kSteps, now() - begin);
  const double flops = 2.0 * 32 * kSteps * static_cast<double>(prompt) * 128;
  const double bytes = 4.0 * (8 * 128 + 32 * kSteps) * static_cast<double>(prompt);
  fmt::print("{:<52} {:>9} {:>9} {:>9} {:>9}\n", "policy", "begin s", "steps s", "of GEMM", "of memory");
  for (const Case& c : kCases) {
    if (!asked(c, argc, argv)) continue;
    const auto [indices, steps] = time_of(c, oracle);
    fmt::print("{:<52} {:>9.3f} {:>9.3f} {:>8.1f}% {:>8.1f}%\n", fmt::format("{} {}", c.name, c.parameters), indices,
               steps, 100 * flops / machine.flops / steps, 100 * bytes / machine.bytes / steps);
    std::fflush(stdout);
  }
  return 0;
}
