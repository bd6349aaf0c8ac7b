// StreamingLLM (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, arXiv 2309.17453).
//
// Idea: the first tokens absorb attention that other tokens do not need; keep them and a sliding window, drop the rest.
// Selection: positions [0, sink) and the last `recent`, including the current token; the same in every head. A token is
// evicted before the step's attention, so that a step reads at most sink + recent tokens.
// Cost: reads 2·n_kv·(sink + recent)·d·b; in a ring buffer eviction is free.
// Storage: the same.
// The original keeps keys before RoPE and numbers positions within the cache. Traces contain keys after RoPE at their
// true positions, so that this is not modelled.
#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::streaming_llm {
namespace {

struct StreamingSetting {
  std::int64_t budget = 0, sink = 0, recent = 0, block = 0;
};

class StreamingSelector final : public Selector {
 public:
  StreamingSelector(const LayerInput& layer, std::int64_t sink, std::int64_t recent)
      : info_(layer.info()), sink_(sink), recent_(recent) {}

  void prefill(LayerSelection& resident) override { fill(info_.prompt_tokens, resident); }

  void step(int t, LayerSelection& out) override {
    const std::int64_t tokens = info_.prompt_tokens + t + 1;
    fill(tokens, out);
    if (tokens <= sink_ + recent_) return;
    // The token that leaves the window to make room for the current one; with recent = 0, the current one itself.
    for (HeadSelection& head : out.heads) head.evicted.push_back(static_cast<std::int32_t>(tokens - 1 - recent_));
  }

 private:
  void fill(std::int64_t tokens, LayerSelection& out) const {
    out.reset(index(info_.n_kv_heads), false);
    const std::int64_t window = std::max(std::min(sink_, tokens), tokens - recent_);
    for (HeadSelection& head : out.heads) {
      append_range(0, std::min(sink_, tokens), head.attended);
      append_range(window, tokens, head.attended);
    }
  }

  const trace::TraceInfo& info_;
  std::int64_t sink_, recent_;
};

class StreamingLlm final : public PolicyBy<StreamingSetting> {
 public:
  using PolicyBy::PolicyBy;

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return std::make_unique<StreamingSelector>(layer, s_.sink, s_.recent);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const bool drops = ops.unfused() && std::ranges::any_of(shape.sequences, [this](const Sequence& sequence) {
                         return sequence.tokens > s_.budget;
                       });
    ops.done(ops.attention(attention_over(shape, 0), {drops ? rebuild(shape, ops) : ops.ready()}));
  }

  // In blocks, tokens that left the window are evicted before the next block.
  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths&) const override { return {s_.block, s_.budget}; }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const std::int64_t held = std::min(shape.tokens, s_.budget);
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, held))};
  }

  Growth growth(const Lengths&) const override { return {.fill = s_.budget}; }

 private:
  // mit-han-lab/streaming-llm: kv_cache.py joins the sink and the window to a new tensor in every step, and
  // pos_shift/modify_llama.py rotates all keys to their positions within it.
  static OpId rebuild(const DecodeLayer& shape, LayerOps& ops) {
    const double keys = shape.sum(&HeadCounts::attended) * Dims(*shape.model).row();
    OpId op = ops.ready();
    const auto pass = [&](const char* label, double read, double write, KernelClass cls = KernelClass::kElementwise) {
      op = ops.compute(Kind::kIndex, label, Kernel{cls, read, write}, {op});
    };
    pass("join sink and window", keys, keys, KernelClass::kConcatenate);  // of keys, then of values
    pass("join sink and window", keys, keys, KernelClass::kConcatenate);
    pass("keys x cos", keys, keys);
    pass("negate half", keys / 2, keys / 2);
    pass("join halves", keys, keys, KernelClass::kConcatenate);
    pass("rotated x sin", keys, keys);
    pass("sum of both", 2 * keys, keys);
    return op;
  }
};

Fields<StreamingSetting> streaming_llm_fields() {
  using S = StreamingSetting;
  return Fields<S>()
      .add(budget_parameter("tokens kept per KV head, sink + recent"), &S::budget)
      .add(whole("sink", 4, "tokens", "first tokens kept"), &S::sink)
      .add(whole_or("recent", "budget-sink", "tokens", "last tokens kept, including the current one", 0, 1e9),
           &S::recent)
      .add(block_parameter(), &S::block);
}

// Two of budget, sink and recent determine the third.
StreamingSetting read_streaming(const ParameterValues& values) {
  StreamingSetting s = streaming_llm_fields().read(values);
  const bool recent_given = !values.is_text("recent");
  if (recent_given && !values.given("budget")) s.budget = s.sink + s.recent;
  if (recent_given && values.given("budget") && !values.given("sink")) s.sink = s.budget - s.recent;
  if (!recent_given) s.recent = s.budget - s.sink;
  if (!recent_given && s.recent < 0) {
    throw UserError(values.where("budget"), fmt::format("budget ({}) is smaller than sink ({})", s.budget, s.sink));
  }
  if (s.sink < 0 || s.recent < 0 || s.sink + s.recent != s.budget) {
    throw UserError(values.where(recent_given ? "recent" : "budget"),
                    fmt::format("budget ({}) must equal sink ({}) + recent ({})", s.budget, s.sink, s.recent));
  }
  return s;
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "streaming_llm";
  d.sentence = "Keeps the first tokens and a sliding window, and drops all others for good.";
  d.category = Category::kDrop;
  d.paper = "Xiao et al., StreamingLLM, ICLR 2024 (arXiv 2309.17453)";
  d.parameters = streaming_llm_fields().parameters();
  d.budget_convention = "sink + recent, including the current token";
  d.formulas = {"traffic: 2·n_kv·min(L, sink + recent)·d·b per step", "storage: 2·n_kv·min(L, sink + recent)·d·b"};
  d.differences = {
      "keys stay at their own positions; the original re-rotates them to positions within the cache, which is charged "
      "in "
      "frameworks that launch operators one by one"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    return BudgetRule{.tokens = read_streaming(values).budget, .counts = BudgetRule::Counts::kRetained};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    return std::make_unique<StreamingLlm>(read_streaming(values));
  };
  return d;
}

}  // namespace kvcast::policy::streaming_llm
