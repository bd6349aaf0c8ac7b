// Memory of an engine's pool, by the rules of each engine, and what requests hold of it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/error.hpp"
#include "config/deployment.hpp"
#include "hardware/cost_model.hpp"
#include "lower/dense.hpp"
#include "lower/kv_capacity.hpp"
#include "policy/request_memory.hpp"
#include "study/service.hpp"

namespace kvcast::study {
namespace {

// A policy holds every token if its memory is proportional to them, within this share.
constexpr double kProportional = 0.03;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();  // tokens of a window
constexpr double kMiB = 1024 * 1024, kGiB = 1024 * kMiB;

// A policy's memory by the lengths that were read; asked for the same ones again and again.
class PolicyFootprint final : public serving::Footprint {
 public:
  PolicyFootprint(const policy::Policy& policy, config::Model layers, std::int64_t outputs, double attended,
                  double block_bytes, double state_bytes, double sliding_bytes, std::int64_t window)
      : policy_(policy),
        layers_(std::move(layers)),
        outputs_(outputs),
        attended_(attended),
        block_bytes_(block_bytes),
        state_bytes_(state_bytes),
        sliding_bytes_(sliding_bytes),
        window_(window) {}

  std::int64_t reading(std::int64_t tokens) const override { return blocks(of(tokens).hbm.reading + others(tokens)); }
  std::int64_t decoding(std::int64_t known, std::int64_t tokens) const override {
    const policy::PoolMemory& hbm = of(known).hbm;
    return blocks(hbm.read + std::max(0.0, hbm.per_token) * static_cast<double>(tokens - known) + others(tokens));
  }
  double host_bytes(std::int64_t tokens) const override { return of(tokens).dram.read; }
  std::shared_ptr<const Footprint> for_thread() const override { return std::make_shared<PolicyFootprint>(*this); }

 private:
  std::int64_t blocks(double bytes) const { return static_cast<std::int64_t>(std::ceil(bytes / block_bytes_ - 1e-9)); }
  // Bytes of layers that keep a window of tokens, and of those that keep a state.
  double others(std::int64_t tokens) const {
    return state_bytes_ + sliding_bytes_ * static_cast<double>(std::min(tokens, window_));
  }
  const policy::RequestMemory& of(std::int64_t known) const {
    const auto found = known_.find(known);
    if (found != known_.end()) return found->second;
    return known_.emplace(known, policy::request_memory(policy_, layers_, {known, outputs_}, attended_)).first->second;
  }

  const policy::Policy& policy_;
  config::Model layers_;
  std::int64_t outputs_;
  double attended_, block_bytes_, state_bytes_, sliding_bytes_;
  std::int64_t window_;
  mutable std::unordered_map<std::int64_t, policy::RequestMemory> known_;
};

// Bytes of a GPU for the cache. low, high: by the uncertainty of what else takes memory.
struct Bytes {
  double middle = 0, low = 0, high = 0;
};

// SGLang 0.4.7 to 0.5.3, server_args.py: the share that it takes of the memory, unless it is given.
double sglang_share(double gib, int gpus, const std::optional<config::Speculation>& speculation) {
  double reserved = gib < 35 ? 2.8 + gpus / 10.0 : gib < 90 ? 9.5 + gpus / 2.0 : gib < 160 ? 12 + gpus / 2.0 : 32;
  if (speculation) reserved += speculation->draft ? 6 : 2;
  return std::floor((gib - reserved) / gib * 1000) / 1000;
}

double share_of(const config::Run& run, serving::Engine engine) {
  if (const auto written = run.scheduler.memory_utilization) return *written;
  if (engine == serving::Engine::kStatic) return 1;
  if (engine != serving::Engine::kSglang) return 0.9;
  return sglang_share(run.hardware.gpu.hbm_capacity / kGiB, run.deployment.tensor_parallel, run.speculation);
}

Bytes vllm_bytes(const config::Framework& framework, const config::Model& rank, const serving::Rules& rules,
                 double total, double share) {
  const lower::KvCapacity blocks =
      lower::kv_capacity(rank, {total, share, rules.max_num_seqs, rules.max_num_batched_tokens, rules.block,
                                framework.sampler_bytes, framework.graph_pool});
  const double block = static_cast<double>(rules.block) * rank.kv_bytes_per_token();
  // One block is never given out.
  const auto bytes = [&](std::int64_t count) { return static_cast<double>(count - 1) * block; };
  return {bytes(blocks.blocks), bytes(blocks.low), bytes(blocks.high)};
}

Bytes cache_bytes(const config::Run& run, const config::Model& rank, const serving::Rules& rules) {
  const config::Gpu& gpu = run.hardware.gpu;
  const double total = gpu.hbm_capacity, weights = rank.gpu_weight_bytes();
  const double share = share_of(run, rules.engine);
  const double activations = lower::activation_bytes(rank, static_cast<double>(rules.max_num_batched_tokens),
                                                     static_cast<double>(rules.max_num_seqs));
  switch (rules.engine) {
    case serving::Engine::kVllmV1:
    case serving::Engine::kVllmV0:
      return vllm_bytes(run.framework, rank, rules, total, share);
    case serving::Engine::kSglang: {
      // The memory after the weights, less the part that the share leaves to others.
      const double bytes = share * total - weights - gpu.hbm_reserved;
      return {bytes, bytes - 0.02 * total, bytes + 0.02 * total};
    }
    case serving::Engine::kTrtllm: {
      const auto bytes = [&](double factor) {
        return share * (total - gpu.hbm_reserved - weights - factor * activations);
      };
      return {bytes(1), bytes(1 + result::kTemporarySpread), bytes(1 - result::kTemporarySpread)};
    }
    case serving::Engine::kStatic:
      break;
  }
  const auto bytes = [&](double factor) { return share * (total - gpu.hbm_reserved) - weights - factor * activations; };
  return {bytes(1), bytes(1 + result::kTemporarySpread), bytes(1 - result::kTemporarySpread)};
}

// Bytes per token if the policy keeps every token, whatever their number; otherwise nothing.
std::optional<double> bytes_of_every_token(const policy::Policy& policy, const config::Model& layers,
                                           std::int64_t outputs, double attended) {
  std::optional<double> each;
  for (const std::int64_t tokens : {16384, 65536}) {
    const policy::PoolMemory hbm = policy::request_memory(policy, layers, {tokens, outputs}, attended).hbm;
    if (hbm.read <= 0 || hbm.reading > hbm.read * (1 + kProportional)) return {};
    const double here = hbm.read / static_cast<double>(tokens);
    if (each && std::abs(here / *each - 1) > kProportional) return {};
    each = here;
  }
  return each;
}

}  // namespace

// Groups of layers of one kind, of as many layers each (vLLM's get_kv_cache_groups).
serving::WindowRules groups_of(const config::Model& rank, int& layers) {
  constexpr double kAlike = 1.25;  // kinds of numbers of layers as near as this are one group each
  const int all = rank.full_layers(), sliding = rank.layers_with(config::Mixer::kSliding);
  const auto [fewer, more] = std::minmax(all, sliding);
  layers = more < kAlike * fewer ? more : fewer;
  return {(sliding + layers - 1) / layers, (all + layers - 1) / layers, rank.sliding_window};
}

double memory_utilization(const config::Run& run, const serving::Rules& rules) { return share_of(run, rules.engine); }

std::optional<Value> engine_reserved(const config::Run& run) {
  if (run.scheduler.kind.value_or(serving::Engine::kStatic) == serving::Engine::kStatic) return {};
  const serving::Rules rules = service_rules(run);
  const config::Model rank = config::rank_model(run.deployment, run.model);
  const Bytes pool = cache_bytes(run, rank, rules);
  const double activations = lower::activation_bytes(rank, static_cast<double>(rules.max_num_batched_tokens), 0);
  const config::Gpu& gpu = run.hardware.gpu;
  const double left = gpu.hbm_capacity - rank.gpu_weight_bytes() - activations - std::max(0.0, pool.middle);
  if (left <= gpu.hbm_reserved) return {};
  return Value{left, Origin::kLiterature, std::min(1.0, (pool.high - pool.low) / 2 / left),
               "what the engine's own rules leave of the memory"};
}

std::int64_t kept_tokens(const config::Run& run, const policy::Policy& policy, std::int64_t prompt, double attended) {
  const config::Model rank = config::rank_model(run.deployment, run.model);
  config::Model layers = config::attending(rank);
  layers.layers = rank.full_layers();
  const double bytes = policy::request_memory(policy, layers, {prompt, run.workload.decode_tokens}, attended).hbm.read;
  return std::max<std::int64_t>(1, std::llround(bytes / layers.kv_bytes_per_token()));
}

ServiceMemory service_memory(const config::Run& run, const policy::Policy& policy, const serving::Rules& rules,
                             double attended) {
  const config::Model rank = config::rank_model(run.deployment, run.model);
  config::Model layers = config::attending(rank);
  layers.layers = rank.full_layers();
  const double full = rank.kv_bytes_per_token();
  const double sliding =
      config::sliding_layers(rank).kv_bytes_per_token_layer() * rank.layers_with(config::Mixer::kSliding);
  const bool all = sliding_cache(run, rules) == config::SchedulerRules::SlidingCache::kAll;
  const double token = full + (all ? sliding : 0), block = static_cast<double>(rules.block) * token;
  const double states = rank.state_bytes() * (run.speculation && rank.recurrence ? run.speculation->verified() : 1);
  const std::int64_t outputs = run.workload.decode_tokens;
  const policy::RequestMemory mean =
      policy::request_memory(policy, layers, {run.workload.prompt_tokens, outputs}, attended);
  const Bytes bytes = cache_bytes(run, rank, rules);
  ServiceMemory memory;
  const bool alike = rank.sliding_kv_heads == 0 && rank.sliding_head_dim == 0;
  const bool groups = sliding > 0 && alike && !all && rules.engine == serving::Engine::kVllmV1 && mean.dram.read <= 0;
  std::optional<double> each;
  if (states == 0 && (sliding == 0 || all || groups)) each = bytes_of_every_token(policy, layers, outputs, attended);
  double pool_block = block;
  if (each && groups) {
    int of_group = 0;
    memory.windows = groups_of(rank, of_group);
    pool_block = static_cast<double>(rules.block) * *each * of_group / rank.full_layers();
  } else if (each) {
    pool_block = static_cast<double>(rules.block) * (*each + token - full);
  }
  // A draft's cache grows with the model's: a block has a place in both.
  double draft_weights = 0, with_draft = 1;
  if (const auto& s = run.speculation; s && s->draft) {
    const config::Model draft = config::draft_rank(*s, run.deployment);
    draft_weights = config::draft_weight_bytes(*s, draft);
    with_draft += draft.kv_bytes_per_token() / token;
  }
  const auto count = [&](double of) {
    const double left = of - mean.hbm.shared - draft_weights;
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(left / (with_draft * pool_block))));
  };
  memory.blocks = count(bytes.middle), memory.low = count(bytes.low), memory.high = count(bytes.high);
  memory.tokens_of_block = pool_block / token;
  memory.block_bytes = pool_block;
  memory.copied_bytes =
      mean.dram.read / static_cast<double>(run.workload.prompt_tokens) * static_cast<double>(rules.block);
  const hardware::CostModel costs(run.hardware, run.framework, {}, run.deployment.gpus());
  memory.host_bytes = costs.capacity(graph::Pool::kDram) - mean.dram.shared - rank.host_weight_bytes();
  if (each && mean.dram.read <= 0) {
    memory.footprint = std::make_shared<serving::FullCache>(rules.block);
  } else {
    memory.footprint = std::make_shared<PolicyFootprint>(policy, layers, outputs, attended, pool_block, states, sliding,
                                                         all ? kAll : rank.sliding_window);
  }
  return memory;
}

}  // namespace kvcast::study
