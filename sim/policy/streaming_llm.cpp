// StreamingLLM (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, arXiv 2309.17453).
//
// Idea: the first tokens soak up attention that has nowhere to go; keep them and a sliding window, drop the rest.
// Selection: positions [0, sink) and the last `recent`, the current token included; every head the same. A token leaves
//   before the step's attention, so that a step reads at most sink + recent tokens.
// Cost: reads 2·n_kv·(sink + recent)·d·b; a ring buffer makes eviction free. Storage: the same.
// The original keeps keys before RoPE and numbers positions within the cache; traces hold keys after RoPE at their true
// positions, so that re-rotation is not modelled.
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy/eviction.hpp"
#include "policy/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

class StreamingSelector final : public Selector {
 public:
  StreamingSelector(const LayerInput& layer, std::int64_t sink, std::int64_t recent)
      : info_(layer.info()), sink_(sink), recent_(recent) {}

  void prefill(LayerSelection& resident) override { fill(info_.prompt_tokens, resident); }

  void step(int t, LayerSelection& out) override {
    const std::int64_t tokens = info_.prompt_tokens + t + 1;
    fill(tokens, out);
    if (tokens <= sink_ + recent_) return;
    // The token that slides out of the window to make room for the current one; with recent = 0, the current one
    // itself.
    for (HeadSelection& head : out.heads) head.evicted.push_back(static_cast<std::int32_t>(tokens - 1 - recent_));
  }

 private:
  void fill(std::int64_t tokens, LayerSelection& out) const {
    out.reset(static_cast<std::size_t>(info_.n_kv_heads), false);
    const std::int64_t window = std::max(std::min(sink_, tokens), tokens - recent_);
    for (HeadSelection& head : out.heads) {
      for (std::int64_t i = 0; i < std::min(sink_, tokens); ++i) head.attended.push_back(static_cast<std::int32_t>(i));
      for (std::int64_t i = window; i < tokens; ++i) head.attended.push_back(static_cast<std::int32_t>(i));
    }
  }

  const trace::TraceInfo& info_;
  std::int64_t sink_, recent_;
};

class StreamingLlm final : public Policy {
 public:
  StreamingLlm(std::int64_t sink, std::int64_t recent, std::int64_t block, bool covers_all)
      : sink_(sink), recent_(recent), block_(block), covers_all_(covers_all) {}

  std::unique_ptr<Selector> selector(const LayerInput& layer) const override {
    return std::make_unique<StreamingSelector>(layer, sink_, recent_);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    ops.done(ops.attention(attention_over(shape, 0), {ops.ready()}));
  }

  // In blocks, what slid out of the window is gone before the next one comes.
  PromptBlocks prompt_blocks(const config::Model&, int) const override { return {block_, sink_ + recent_}; }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const std::int64_t held = std::min(shape.tokens, sink_ + recent_);
    return {{graph::Pool::kHbm, "KV cache", kv_bytes(shape, static_cast<double>(held))}};
  }

  Growth growth() const override { return {.attended = covers_all_ ? 1.0 : 0.0}; }

 private:
  std::int64_t sink_, recent_, block_;
  bool covers_all_;
};

std::unique_ptr<Policy> make(const ParameterValues& values, const Lengths& lengths) {
  std::int64_t budget = values.integer("budget");
  std::int64_t sink = values.integer("sink");
  const bool recent_given = !values.is_text("recent");
  std::int64_t recent = recent_given ? values.integer("recent") : 0;
  if (recent_given && !values.given("budget")) budget = sink + recent;
  if (recent_given && values.given("budget") && !values.given("sink")) sink = budget - recent;
  if (!recent_given) recent = budget - sink;
  if (sink < 0 || recent < 0 || sink + recent != budget) {
    throw UserError(values.where(recent_given ? "recent" : "budget"),
                    fmt::format("budget ({}) must be sink ({}) + recent ({})", budget, sink, recent));
  }
  return std::make_unique<StreamingLlm>(sink, recent, read_block(values), budget >= lengths.bound());
}

}  // namespace

Descriptor describe_streaming_llm() {
  Descriptor d;
  d.name = "streaming_llm";
  d.sentence = "Keeps the first tokens and a sliding window; whatever lies between is gone for good.";
  d.category = "drop";
  d.paper = "Xiao et al., StreamingLLM, ICLR 2024 (arXiv 2309.17453)";
  d.parameters = {budget_parameter("tokens kept a KV head, sink + recent"),
                  whole("sink", 4, "tokens", "first tokens kept"),
                  whole_or("recent", "budget-sink", "tokens", "last tokens kept, the current one included", 0, 1e9),
                  block_parameter()};
  d.budget_convention = "retained: sink + recent, the current token included";
  d.formulas = {"traffic: 2·n_kv·min(L, sink + recent)·d·b a step", "storage: 2·n_kv·min(L, sink + recent)·d·b"};
  d.differences = {"keys stay at their own positions; the original re-rotates them to positions within the cache"};
  d.make = make;
  return d;
}

}  // namespace kvcast::policy
