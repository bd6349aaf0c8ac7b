// ChunkKV (Liu et al., "ChunkKV: Semantic-Preserving KV Cache Compression for Efficient Long-Context LLM Inference",
// 2025, arXiv 2502.00299; code: NVIDIA/kvpress, chunkkv_press.py).
//
// Idea: tokens mean something together, so that runs of neighbours are kept or dropped whole.
// Selection, once after the prompt: SnapKV's scores, summed over the KV heads of the layer; the score of a chunk of
// `chunk` tokens is their mean. The budget / chunk best chunks are kept, the same ones in all heads. The last chunk may
// be shorter and counts as one; chunks of the window alone are always kept.
// Cost of the prompt: SnapKV's scores, their sum over heads and chunks, top-k over S / chunk values, compaction. A step
// reads 2·n_kv·(budget + T)·d·b.
// Storage: the same.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy/pages.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/window_ranking.hpp"

namespace kvcast::policy::chunkkv {
namespace {

struct ChunkSetting {
  PromptEviction scores;
  std::int64_t chunk = 1;
  std::int64_t chosen() const { return scores.budget / chunk; }
};

class ChunkRetention final : public Retention {
 public:
  explicit ChunkRetention(const ChunkSetting& setting) : s_(setting) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    const std::int64_t prompt = layer.info().prompt_tokens;
    if (prompt <= s_.scores.budget) return {};
    const std::vector<std::vector<float>> heads = ranked_by_window(layer, s_.scores);
    std::vector<float> chunks;
    for (std::int64_t first = 0; first < prompt; first += s_.chunk) {
      const std::int64_t end = std::min(prompt, first + s_.chunk);
      double sum = 0;
      for (const std::vector<float>& head : heads) {
        for (std::int64_t i = first; i < end; ++i) sum += head[i];
      }
      const bool stays =
          first >= prompt - s_.scores.window || end > prompt - s_.scores.recent || first < s_.scores.sink;
      chunks.push_back(stays ? std::numeric_limits<float>::infinity() : static_cast<float>(sum / (end - first)));
    }
    std::vector<std::int32_t> best;
    Ranking().select(chunks, s_.chosen(), best);
    std::vector<std::int32_t> kept;
    append_page_tokens(best, s_.chunk, 0, prompt, kept);
    return std::vector(heads.size(), kept);
  }

  // The last chunk is of the window.
  std::int64_t kept(const Lengths& request) const override {
    const std::int64_t prompt = request.prompt_tokens, rest = prompt % s_.chunk;
    if (prompt <= s_.scores.budget) return prompt;
    return s_.chosen() * s_.chunk - (rest > 0 ? s_.chunk - rest : 0);
  }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape, s_.scores.budget);
    if (n == 0) return;
    const Dims m(*shape.model);
    OpId op = window_scores_cost(s_.scores, shape, n, m.q_heads, m.kv_heads, ops);
    const double scored = shape.batch * m.kv_heads * n, chunks = std::ceil(n / s_.chunk);
    Kernel sums{KernelClass::kReduce, scored * kScoreBytes, shape.batch * chunks * kScoreBytes};
    sums.flops = scored;
    op = ops.compute(Kind::kScore, "sums of chunks", sums, {op});
    rank_and_compact(*shape.model, shape.batch, shape.batch * m.kv_heads, chunks, s_.chosen(), kept(shape.request()),
                     ops, op);
  }

 private:
  ChunkSetting s_;
};

const Fields<ChunkSetting>& chunkkv_fields() {
  using S = ChunkSetting;
  static const Fields<S> all =
      Fields<S>()
          .add(window_ranking_fields("prompt tokens kept per KV head, in whole chunks, including the window"),
               &S::scores)
          .add(whole("chunk", 20, "tokens", "neighbours that are kept or dropped together", 1, 1e6), &S::chunk);
  return all;
}

ChunkSetting read_chunkkv(const ParameterValues& values) {
  const ChunkSetting s = chunkkv_fields().read(values);
  check_window(values, s.scores);
  if (s.scores.window + 1 < s.chunk) {
    throw UserError(values.where("chunk"), fmt::format("chunkkv: a chunk ({} tokens) is longer than the window ({})",
                                                       s.chunk, s.scores.window));
  }
  if (s.scores.budget < s.scores.sink + s.scores.last() + (s.scores.sink > 0 ? 3 : 1) * s.chunk) {
    throw UserError(
        values.where("budget"),
        fmt::format("chunkkv: the budget ({} tokens) holds less than sink, window and recent ({}) in chunks of {}",
                    s.scores.budget, s.scores.sink + s.scores.last(), s.chunk));
  }
  return s;
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "chunkkv";
  d.sentence =
      "Keeps the chunks of the prompt to which its last queries attend, the same ones in all heads of a layer.";
  d.category = Category::kDrop;
  d.paper = "Liu et al., ChunkKV, 2025 (arXiv 2502.00299)";
  d.parameters = chunkkv_fields().parameters();
  d.budget_convention = "prompt tokens in whole chunks, including the window; in addition generated tokens";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step", "storage: the same number of bytes"};
  d.differences = {
      "scores are SnapKV's as in kvpress (window 64, mean pooling over 5); chunks of 20 tokens as there, the paper has "
      "10: chunk",
      "the number of chunks is budget / chunk; kvpress takes a share of the prompt's chunks",
      "the paper's reuse of one layer's selection in the next ones is not in the released code and is left out"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const ChunkSetting s = chunkkv_fields().read(values);
    BudgetRule rule = evicts_once(s.scores.budget);
    rule.slack = 2 * s.chunk - 2;
    return rule;
  };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.coupled = true, .window = chunkkv_fields().read(values).scores.window};
  };
  d.stages = [](const ParameterValues& values) {
    return Stages{std::make_unique<ChunkRetention>(read_chunkkv(values)), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy::chunkkv
