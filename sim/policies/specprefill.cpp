// SpecPrefill (Liu et al., "Speculative Prefill: Turbocharging TTFT with Lightweight and Training-Free Token Importance
// Estimation", ICML 2025, arXiv 2502.02789; code: Jingyu6/speculative_prefill, look_ahead_spec_worker.py).
//
// Idea: a small model attends to the same tokens of a prompt as a large one, so that it can decide which of them the
// large one reads at all.
// Selection: the draft reads the prompt and decodes `look_ahead` tokens. A prompt token's importance is the mean over
// these of its largest softmax weight in any layer and head, each averaged over `pool_kernel` neighbours. The prompt is
// cut into chunks of `chunk` tokens; the ⌈budget / chunk⌉ chunks of the largest mean importance enter the model, at
// their own positions; all others never do, in any layer. Decoding attends to what was read and all generated tokens.
// A trace contains one model: its own queries of the first decode steps, over all captured layers, represent the
// draft's.
// Cost: the draft's pass over the prompt, its steps with their weights and cache read, weights of the look-ahead
// queries in all its layers again; then the model's pass over the chosen tokens alone, in linear layers and in
// attention. Storage: 2·n_kv·(budget + T)·d·b, and the draft's weights.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy/pages.hpp"
#include "policy/weights.hpp"
#include "policy/window.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/forwarded_policy.hpp"
#include "policy_parts/prompt_eviction.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::specprefill {
namespace {

struct SpecSetting {
  std::int64_t budget = 0, chunk = 32, look_ahead = 8;
  int pool_kernel = 13;
  config::Model draft;

  std::int64_t chosen() const { return (budget + chunk - 1) / chunk; }
  std::int64_t read_of(std::int64_t prompt) const { return std::min(prompt, chosen() * chunk); }
};

// Raises each look-ahead token's weights on the prompt to those of a layer's query heads.
void raise(const trace::Layer& layer, const SpecSetting& s, std::vector<std::vector<float>>& largest) {
  const auto prompt = index(layer.info().prompt_tokens);
  const float scale = 1 / std::sqrt(static_cast<float>(layer.info().head_dim));
  std::vector<float> weights, pooled;
  for (int q = 0; q < layer.info().n_q_heads; ++q) {
    for (std::size_t t = 0; t < largest.size(); ++t) {
      const float* const row = layer.decode_scores(q).row(t);
      weights.assign(row, row + prompt);
      softmax(weights, scale);
      pool(Pooling::kAverage, s.pool_kernel, weights, pooled);
      for (std::size_t i = 0; i < prompt; ++i) largest[t][i] = std::max(largest[t][i], pooled[i]);
    }
  }
}

class SpecRetention final : public Retention {
 public:
  explicit SpecRetention(const SpecSetting& setting) : s_(setting) {}

  bool surveys(const Lengths&) const override { return true; }
  void survey(std::span<const LayerInput* const> layers, const Lengths&) override {
    layers_.assign(layers.begin(), layers.end());
  }

  // The same tokens in all layers; a layer alone selects for itself.
  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    const trace::TraceInfo& info = layer.info();
    const std::int64_t prompt = info.prompt_tokens;
    if (s_.read_of(prompt) == prompt) return {};
    const auto looked = index(std::min<std::int64_t>(s_.look_ahead, info.decode_steps));
    std::vector<std::vector<float>> largest(looked, std::vector<float>(index(prompt)));
    for (const LayerInput* other : layers_) raise(other->layer(), s_, largest);
    if (layers_.empty()) raise(layer.layer(), s_, largest);
    std::vector<float> chunks;
    for (std::int64_t first = 0; first < prompt; first += s_.chunk) {
      const std::int64_t end = std::min(prompt, first + s_.chunk);
      double sum = 0;
      for (const std::vector<float>& of_token : largest) {
        for (std::int64_t i = first; i < end; ++i) sum += of_token[index(i)];
      }
      chunks.push_back(static_cast<float>(sum / (end - first)));
    }
    std::vector<std::int32_t> best, kept;
    Ranking().select(chunks, index(s_.chosen()), best);
    append_page_tokens(best, s_.chunk, 0, prompt, kept);
    return std::vector(index(info.n_kv_heads), kept);
  }

  std::int64_t kept(const Lengths& request) const override { return s_.read_of(request.prompt_tokens); }
  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths& request) const override {
    const auto read = static_cast<double>(kept(request));
    return {.read = read / static_cast<double>(std::max<std::int64_t>(1, request.prompt_tokens))};
  }

  // All of the draft's work counts with the model's first layer, which follows it.
  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    if (shape.layer > 0 || kept(shape.request()) == shape.prompt_tokens) return;
    const double tokens = shape.prompt_tokens, batch = shape.batch;
    OpId op = ops.ready();
    for (int layer = 0; layer < s_.draft.layers; ++layer) {
      const PrefillChunk whole{&s_.draft, layer, shape.batch, 0, shape.prompt_tokens, 0, 1};
      op = draft_layer(batch * tokens, causal_attention(whole), ops, op);
    }
    const Dims m(s_.draft);
    for (std::int64_t t = 0; t < s_.look_ahead; ++t) {
      const double held = tokens + t + 1;
      PrefillAttention step;
      step.flops = 4 * batch * m.q_heads * held * m.d;
      step.read_bytes = 2 * batch * m.kv_heads * held * m.row();
      step.write_bytes = batch * m.q_heads * m.row();
      for (int layer = 0; layer < s_.draft.layers; ++layer) op = draft_layer(batch, step, ops, op);
      op = ops.compute(Kind::kGemm, "draft: head",
                       Gemm{batch, static_cast<double>(s_.draft.vocab), static_cast<double>(s_.draft.hidden)}, {op});
    }
    importance(batch, tokens, ops, op);
  }

 private:
  OpId draft_layer(double rows, const PrefillAttention& attention, LayerOps& ops, OpId op) const {
    const Dims m(s_.draft);
    const auto hidden = static_cast<double>(s_.draft.hidden), ffn = static_cast<double>(s_.draft.ffn);
    const auto project = [&](const char* label, double out, double in) {
      op = ops.compute(Kind::kGemm, label, Gemm{rows, out, in}, {op});
    };
    project("draft: queries, keys and values", (m.q_heads + 2 * m.kv_heads) * m.d, hidden);
    op = ops.compute(Kind::kAttention, "draft: attention", attention, {op});
    project("draft: output", hidden, m.q_heads * m.d);
    project("draft: up and gate", 2 * ffn, hidden);
    project("draft: down", hidden, ffn);
    return op;
  }

  // Weights of the look-ahead queries on the prompt in all layers of the draft.
  void importance(double batch, double tokens, LayerOps& ops, OpId op) const {
    const Dims m(s_.draft);
    const double lists = batch * s_.draft.layers, rows = lists * m.q_heads * s_.look_ahead;
    const double weights = rows * tokens;
    const Kernel score{KernelClass::kScore, lists * m.kv_heads * tokens * m.row(), weights * kScoreBytes,
                       2 * weights * m.d};
    op = ops.compute(Kind::kScore, "weights of look-ahead queries", score, {op});
    // Softmax (maximum, sum), pooling, maximum over layers and heads.
    const Kernel largest{KernelClass::kReduce, 4 * weights * kScoreBytes, batch * tokens * kScoreBytes, 8 * weights};
    op = ops.compute(Kind::kScore, "importance of tokens", largest, {op});
    const double chunks = std::ceil(tokens / s_.chunk);
    ops.compute(Kind::kTopK, "best chunks", TopK{batch, chunks, static_cast<double>(s_.chosen()), kScoreBytes}, {op});
  }

  SpecSetting s_;
  std::vector<const LayerInput*> layers_;
};

// Adds the draft's weights to the memory.
class SpecPrefill final : public WrappedPolicy {
 public:
  explicit SpecPrefill(const SpecSetting& setting)
      : WrappedPolicy(two_stages(std::make_unique<SpecRetention>(setting), read_all())), s_(setting) {}

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    std::vector<MemoryItem> items = inner_->memory(shape);
    if (s_.read_of(shape.lengths.prompt_tokens) < shape.lengths.prompt_tokens)
      items.push_back(in_hbm(Owner::kDraft, s_.draft.weight_bytes(), true));
    return items;
  }

 private:
  SpecSetting s_;
};

Fields<SpecSetting> specprefill_fields() {
  using S = SpecSetting;
  return Fields<S>()
      .add(budget_parameter("prompt tokens that the model reads, in whole chunks, rounded up"), &S::budget)
      .add(whole("chunk", 32, "tokens", "neighbours that are read or left out together", 1, 1e6), &S::chunk)
      .add(whole("look_ahead", 8, "tokens", "tokens that the draft decodes, whose attention rates the prompt", 1, 1000),
           &S::look_ahead)
      .add(pool_kernel_parameter(13), &S::pool_kernel)
      .add(choice("draft", {"llama-3.2-1b", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b"},
                  "model that chooses the tokens, by its shape"));
}

SpecSetting read_specprefill(const ParameterValues& values) {
  SpecSetting s = specprefill_fields().read(values);
  if (s.pool_kernel % 2 == 0) {
    throw UserError(values.where("pool_kernel"), fmt::format("pool_kernel must be odd, found {}", s.pool_kernel));
  }
  s.draft = config::model_named(values.text("draft"));
  return s;
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "specprefill";
  d.sentence = "A small draft model reads the prompt and chooses the chunks of it that the model reads at all.";
  d.category = Category::kDrop;
  d.paper = "Liu et al., Speculative Prefill, ICML 2025 (arXiv 2502.02789)";
  d.parameters = specprefill_fields().parameters();
  d.prunes_prompt = true;
  d.no_ends = "whole chunks enter the model by their importance alone";
  d.budget_convention = "prompt tokens in whole chunks, the same ones in all layers; in addition generated tokens";
  d.formulas = {"prompt: the draft's pass and look_ahead of its steps; the model's pass over budget tokens",
                "traffic: 2·n_kv·(min(S, budget) + T)·d·b per step",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b, and the draft's weights"};
  d.differences = {
      "traces contain one model: the weights of its own first decode queries, over the captured layers, stand for "
      "those "
      "of the draft's, so that the selection is better than any draft's",
      "keys and values of a replay are those of the whole prompt, without the effect of tokens that were left out",
      "budget / chunk chunks are read, rounded up; the released code takes a share of the prompt's chunks",
      "the draft is whole on every GPU; its cache, held until the model has read the prompt, is not counted"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const SpecSetting s = specprefill_fields().read(values);
    BudgetRule rule = evicts_once(s.chosen() * s.chunk);
    rule.slack = s.chunk - 1;
    return rule;
  };
  d.needs = [](const ParameterValues&, const Lengths&) {
    return ReplayNeeds{.coupled = true,
                       .unseen =
                           "keys and values of a replay are those of the whole prompt, without the effect of the "
                           "tokens that were left out"};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    return std::make_unique<SpecPrefill>(read_specprefill(values));
  };
  return d;
}

}  // namespace kvcast::policy::specprefill
