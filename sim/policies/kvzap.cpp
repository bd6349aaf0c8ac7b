// KVzap (Jégou and Jeblick, "KVzap: Fast, Adaptive, and Faithful KV Cache Pruning", 2026, arXiv 2601.07891; code:
// NVIDIA/kvpress, kvzap_press.py and dms_press.py) under the rule of Dynamic Memory Sparsification (arXiv 2506.05345).
//
// Idea: a small network predicts from the hidden state of a token the score that KVzip would give it; a threshold on
// the score, in place of a budget, lets each prompt, layer and head keep as many tokens as it needs.
// Selection, per KV head: a token that leaves the last `window` tokens is dropped if the logarithm of its score is
// below `threshold`; in the prompt, and with `decoding` among generated tokens too. How many stay follows from scores.
// A trace does not contain the network: KVzip's scores, which it is trained to predict, represent it
// (policies/kvzip.hpp); those of generated tokens are from their repetition after the last step, as a prediction would
// be. Cost: the network on each token, 2·D·m + 2·m·n_kv FLOP, or 2·D·n_kv if it is linear; what stays of the prompt is
// copied once. A step reads 2·n_kv·N·d·b. With `masked`, kvpress: dropped pairs stay where they are and are read.
// Storage: 2·n_kv·N·d·b, N the mean number of tokens that stay.
#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "policies/kvzip.hpp"
#include "policy/costs.hpp"
#include "policy_parts/pass_parts.hpp"
#include "policy_parts/policy_by.hpp"

namespace kvcast::policy::kvzap {
namespace {

struct KvzapSetting {
  double threshold = -4;
  std::int64_t sink = 0, window = 128, chunk = 2048, width = 512;
  bool decoding = false, masked = false, linear = false;
};

class KvzapSelector final : public Selector {
 public:
  KvzapSelector(const LayerInput& layer, const KvzapSetting& setting) : info_(layer.info()), s_(setting) {
    constexpr std::int64_t kSink = 4;  // of KVzip's repetition
    require_prompt_queries(info_, 0, "kvzap's scores repeat the prompt with its own queries");
    const auto stays = [&](float score) { return std::log(static_cast<double>(score)) >= s_.threshold; };
    const std::int64_t prompt = info_.prompt_tokens;
    for (int h = 0; h < info_.n_kv_heads; ++h) {
      std::vector<float> scores = repeated_weights(layer.layer(), h, kSink, s_.chunk, 0, prompt);
      if (s_.decoding) {
        const auto later = repeated_weights(layer.layer(), h, kSink, s_.chunk, prompt, info_.positions());
        scores.insert(scores.end(), later.begin(), later.end());
      }
      std::vector<char>& of_head = stays_.emplace_back(index(info_.positions()), 1);
      std::transform(scores.begin(), scores.end(), of_head.begin(), stays);
      if (!s_.decoding) std::fill(of_head.begin() + judged(prompt), of_head.end(), char{1});
      std::fill_n(of_head.begin(), std::min(s_.sink, info_.positions()), char{1});
    }
  }

  void prefill(LayerSelection& resident) override { fill(info_.prompt_tokens, resident); }

  void step(int t, LayerSelection& out) override {
    const std::int64_t n = info_.prompt_tokens + t + 1, left = judged(n) - 1;  // the token that leaves the window
    fill(n, out);
    if (left < judged(n - 1)) return;
    for (std::size_t h = 0; h < stays_.size(); ++h) {
      if (stays_[h][index(left)] == 0) out.heads[h].evicted.push_back(static_cast<std::int32_t>(left));
    }
  }

 private:
  // Tokens of `n` that have left the window.
  std::int64_t judged(std::int64_t n) const { return std::max<std::int64_t>(0, n - s_.window); }

  void fill(std::int64_t n, LayerSelection& out) const {
    out.reset(stays_.size(), false);
    for (std::size_t h = 0; h < stays_.size(); ++h) {
      for (std::int64_t i = 0; i < judged(n); ++i) {
        if (stays_[h][index(i)] != 0) out.heads[h].attended.push_back(static_cast<std::int32_t>(i));
      }
      append_range(judged(n), n, out.heads[h].attended);
    }
  }

  const trace::TraceInfo& info_;
  KvzapSetting s_;
  std::vector<std::vector<char>> stays_;  // by head and position
};

class Kvzap final : public SelectsBy<KvzapSelector, KvzapSetting> {
 public:
  using SelectsBy::SelectsBy;

  // The number of tokens that stay is the replay's; the copy is charged for all.
  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double tokens = shape.batch * static_cast<double>(shape.prompt_tokens);
    const OpId op = predict(*shape.model, tokens, ops);
    if (s_.masked) return;
    const double bytes = 2 * tokens * m.kv_heads * m.row();
    Kernel compact{KernelClass::kGather, bytes, bytes};
    compact.unit_bytes = m.row();
    ops.compute(Kind::kIndex, "compact", compact, {op});
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const OpId op = s_.decoding ? predict(*shape.model, shape.batch, ops) : ops.ready();
    if (s_.masked) {
      const OtherCounts all(shape);
      return ops.done(ops.attention(attention_over(all.shape(), 0), {op}));
    }
    ops.done(ops.attention(attention_over(shape, 0), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const auto tokens = static_cast<double>(shape.tokens), prompt = static_cast<double>(shape.lengths.prompt_tokens);
    double held = tokens;
    if (!s_.masked && shape.attended > 0) {
      held = s_.decoding ? shape.attended * tokens / prompt : shape.attended + tokens - prompt;
    }
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, std::min(held, tokens)))};
  }

  Growth growth(const Lengths&) const override {
    return {.attended = s_.decoding ? 0.0 : 1.0, .proportional = s_.decoding};
  }

 private:
  OpId predict(const config::Model& model, double rows, LayerOps& ops) const {
    const double hidden = model.hidden, heads = model.n_kv_heads, width = static_cast<double>(s_.width);
    OpId op = ops.ready();
    if (!s_.linear) op = ops.compute(Kind::kScore, "predicted scores", Gemm{rows, width, hidden}, {op});
    return ops.compute(Kind::kScore, "predicted scores", Gemm{rows, heads, s_.linear ? hidden : width}, {op});
  }
};

Fields<KvzapSetting> kvzap_fields() {
  using S = KvzapSetting;
  return Fields<S>()
      .add(real("threshold", -4, "logarithm of the score below which a token is dropped", -100, 0), &S::threshold)
      .add(whole("sink", 0, "tokens", "first tokens, which are never dropped"), &S::sink)
      .add(whole("window", 128, "tokens", "last tokens, including the current one, which are not dropped yet"),
           &S::window)
      .add(flag("decoding", false, "drop generated tokens too"), &S::decoding)
      .add(choice("dropped", {"freed", "masked"},
                  "freed: a cache of heads of unequal lengths; masked: pairs stay in memory and are read (kvpress)"),
           &S::masked)
      .add(choice("network", {"mlp", "linear"}, "network that predicts scores"), &S::linear)
      .add(whole("network_width", 512, "", "width of the network's hidden layer", 1, 65536), &S::width)
      .add(whole("chunk", 2048, "tokens", "piece that is repeated at a time for a score", 1, 16384), &S::chunk);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "kvzap";
  d.sentence = "Drops tokens whose predicted KVzip score is below a threshold, in the prompt and while decoding.";
  d.category = Category::kDrop;
  d.paper = "Jégou and Jeblick, KVzap, 2026 (arXiv 2601.07891), with the rule of DMS (arXiv 2506.05345)";
  d.no_ends = "window sets the last tokens, which are not dropped yet";
  d.formulas = {"traffic: 2·n_kv·N·d·b per step, N the tokens above the threshold and the window",
                "network: 2·D·m + 2·m·n_kv FLOP a token and layer, m its width; linear: 2·D·n_kv",
                "storage: 2·n_kv·N·d·b; masked: 2·n_kv·L·d·b"};
  d.differences = {
      "traces do not contain the trained network: KVzip's own scores, without the norms of values and hidden states "
      "that KVzip+ multiplies them by, stand for its predictions, so that thresholds are not those of released "
      "networks",
      "the width of the released networks' hidden layer is assumed to be an eighth of 4096",
      "with decoding, the share of tokens that stay at a longer context is that of the replay"};
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.whole_prompt = true}; };
  declare<Kvzap>(d, kvzap_fields());
  return d;
}

}  // namespace kvcast::policy::kvzap
