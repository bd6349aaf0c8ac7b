// Attention in two places: a few tokens stay on the GPU, all others lie in host memory, where CPU threads search them
// and attend to what they found; the two partial outputs are merged by their log-sum-exps. MagicPIG, RetrievalAttention
// and CTkvr differ in the search alone.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "policy/fields.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

// Positions begin … end − 1.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The tokens on the GPU: the first `sink` and the last `recent`. The two parts are disjoint, so that no token is
// attended to twice.
struct StaticTokens {
  std::int64_t sink = 0, recent = 0;
  // false: the window slides, and a token that leaves it moves to the host. true: it stands still at the end of the
  // prompt, and generated tokens stay on the GPU.
  bool generated_stay = false;

  // What lies in host memory at a context of `tokens`.
  Range host(std::int64_t prompt, std::int64_t tokens) const;
  std::int64_t on_gpu(std::int64_t prompt, std::int64_t tokens) const { return tokens - host(prompt, tokens).size(); }
};

// Finds tokens of one KV head in host memory.
class HostSearch {
 public:
  virtual ~HostSearch() = default;
  // Step t, in order: fills `attended` of each entry with ascending positions in `host`, and the counts scored (on the
  // GPU) and candidates (on the CPU). One entry, or one a query head of the group.
  virtual void step(int t, Range host, std::span<HeadSelection> out) = 0;
  // As Selector::output, of a query head of the group.
  virtual std::span<const float> output(int) const { return {}; }
  // As Selector::log_weights, the static tokens among them.
  virtual std::span<const float> log_weights(int) const { return {}; }
};

// Builds the searches of a layer's KV heads on all cores. The layer must outlive the selector.
using MakeSearch = std::function<std::unique_ptr<HostSearch>(const LayerInput& layer, int kv_head)>;
std::unique_ptr<Selector> search_host(const LayerInput& layer, const StaticTokens& fixed, bool per_query_head,
                                      const MakeSearch& make);

// ---- cost

// Keys and values of the prompt that leave the GPU, in one piece of each a sequence.
void offload_prompt(const PrefillLayer& shape, const StaticTokens& fixed, LayerOps& ops);
// The token that leaves a sliding window, where heads evicted one.
void offload_token(const DecodeLayer& shape, LayerOps& ops);
// `bytes` go to the host after `after`, which then waits for them; the op from which CPU work may start.
graph::OpId send_to_host(const char* label, double bytes, LayerOps& ops, graph::OpId after);
// Attention of each selecting head to what it found, in rows of one key or value anywhere among the context's.
graph::CpuWork cpu_attention(const DecodeLayer& shape);
// Attention to the static tokens after `queries_left`, beside the CPU's work that ends with `cpu_done`; the CPU's
// outputs and log-sum-exps come back and are merged. Ends the layer.
void attend_and_merge(const DecodeLayer& shape, LayerOps& ops, graph::OpId queries_left, graph::OpId cpu_done);

// The KV pairs in their two places; on_gpu: tokens a head that stay on the GPU.
std::vector<MemoryItem> split_cache(const MemoryShape& shape, std::int64_t on_gpu);

// `sink` and `recent` under the convention that they do not count as selected.
Fields<StaticTokens> static_fields(std::int64_t sink, std::int64_t recent);

}  // namespace kvcast::policy
