// Attention on GPU and CPU together. A few tokens stay on the GPU; all others are in host memory, where CPU threads
// search them and attend to the tokens found. The two partial outputs are merged by their log-sum-exps. MagicPIG,
// RetrievalAttention and CTkvr differ in the search only.
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

// The tokens on the GPU: the first `sink` and the last `recent`. The two ranges are disjoint, so that no token is
// attended to twice.
struct StaticTokens {
  std::int64_t sink = 0, recent = 0;
  // false: the window slides, and a token that leaves it moves to the host. true: the window stays at the end of the
  // prompt, and generated tokens stay on the GPU.
  bool generated_stay = false;

  // Positions in host memory at a context of `tokens`.
  Range host(std::int64_t prompt, std::int64_t tokens) const;
  std::int64_t on_gpu(std::int64_t prompt, std::int64_t tokens) const { return tokens - host(prompt, tokens).size(); }
  // Returns whether these tokens, or the budget of those found, are all of a request.
  bool cover(std::int64_t budget, const Lengths& request) const {
    return std::max(budget, sink + recent) >= request.bound();
  }
};

// Finds tokens of one KV head in host memory.
class HostSearch {
 public:
  virtual ~HostSearch() = default;
  // Runs step t (steps come in order): fills `attended` of each entry with ascending positions in `host`, and the
  // counts `scored` (on the GPU) and `candidates` (on the CPU). `out` has one entry, or one per query head of the
  // group.
  virtual void step(int t, Range host, std::span<HeadSelection> out) = 0;
  // Like Selector::output, for a query head of the group.
  virtual std::span<const float> output(int) const { return {}; }
  // Like Selector::log_weights, including the static tokens.
  virtual std::span<const float> log_weights(int) const { return {}; }
};

// Makes the search of a KV head; called for all heads of a layer on all cores. The layer must outlive the selector.
using MakeSearch = std::function<std::unique_ptr<HostSearch>(const LayerInput& layer, int kv_head)>;
std::unique_ptr<Selector> search_host(const LayerInput& layer, const StaticTokens& fixed, bool per_query_head,
                                      const MakeSearch& make);

// ---- cost

// Copies the prompt's keys and values to the host, each in one piece per sequence.
void offload_prompt(const PrefillLayer& shape, const StaticTokens& fixed, LayerOps& ops);
// Copies the token that leaves a sliding window, for heads that evicted one.
void offload_token(const DecodeLayer& shape, LayerOps& ops);
// Copies `bytes` to the host after `after`; the host waits for them. Returns the op from which CPU work may start.
OpId send_to_host(const char* label, double bytes, LayerOps& ops, OpId after);
// Attention of each selecting head to the tokens found, whose keys and values are at arbitrary positions of the
// context.
CpuWork cpu_attention(const DecodeLayer& shape);
// Attends to the static tokens after `queries_left`, concurrently with the CPU work that ends with `cpu_done`; then
// copies the CPU's outputs and log-sum-exps back and merges them. Ends the layer.
void attend_and_merge(const DecodeLayer& shape, LayerOps& ops, OpId queries_left, OpId cpu_done);

// Memory of the KV pairs on GPU and host; on_gpu: tokens per head that stay on the GPU.
std::vector<MemoryItem> split_cache(const MemoryShape& shape, std::int64_t on_gpu);

// Parameters `sink` and `recent`, which do not count as selected.
Fields<StaticTokens> static_fields(std::int64_t sink, std::int64_t recent);

}  // namespace kvcast::policy
