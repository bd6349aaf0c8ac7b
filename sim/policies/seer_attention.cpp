// SeerAttention-R (Gao et al., "SeerAttention-R: Sparse Attention Adaptation for Long Reasoning", 2025, arXiv
// 2506.08889; code: microsoft/SeerAttention).
//
// Idea: a small gate, distilled from the model's own attention, predicts the blocks of keys that a query needs.
// Selection in each step, per KV head: score of a block of `page` tokens = the largest softmax weight that a query head
// of the group gives one of its tokens. The gate is trained to predict this weight, which represents the trained gate
// here. The best ⌊budget/page⌋ blocks, those of the first `sink` and the last `recent` tokens before others, if
// `threshold` is not 0 otherwise only those whose share of the scores' sum is above it; and the last block, which
// counts towards the budget only if it is among them. Cost: the gate alone: queries of a group through one matrix of
// (group·d)·gate_dim; gate keys read, n_kv·(L/page)·gate_dim·b; top-k; attention 2·n_kv·attended·d·b. A block that
// becomes full is pooled in three ways and multiplied by a matrix of 3·d·gate_dim. All in sequence. Storage:
// 2·n_kv·L·d·b + n_kv·(L/page)·gate_dim·b + the gate's weights, n_kv·(group + 3)·d·gate_dim·b.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy/pages.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy::seer_attention {
namespace {

struct SeerSetting {
  std::int64_t budget = 0, page = 1, gate_dim = 1, sink = 0, recent = 0;
  double threshold = 0;
};

class SeerHead final : public HeadRetrievalBy<SeerSetting> {
 public:
  using HeadRetrievalBy::HeadRetrievalBy;

  void step(int t, std::span<HeadSelection> out) override {
    const std::int64_t n = tokens_.size(t);
    if (s_.threshold == 0 && s_.budget >= n) return tokens_.append_all(t, out[0].attended);
    std::vector<float> scores = score(t, n);
    const auto last = static_cast<std::int32_t>(scores.size()) - 1;
    std::vector<std::int32_t> blocks;
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    rank_pages_first(scores, s_.page, n, s_.sink, s_.recent);
    ranking_.select(scores, index(s_.budget / s_.page), blocks);
    std::erase_if(blocks, [&](std::int32_t b) {
      return s_.threshold > 0 && static_cast<double>(scores[index(b)]) <= s_.threshold * sum;
    });
    if (blocks.empty() || blocks.back() != last) blocks.push_back(last);
    out[0].counts.scored = static_cast<std::int64_t>(scores.size());
    append_page_tokens(blocks, static_cast<int>(s_.page), 0, n, out[0].attended);
    for (std::int32_t& i : out[0].attended) i = tokens_.position(i);
  }

 private:
  // Largest weight of each block.
  std::vector<float> score(int t, std::int64_t n) {
    const trace::TraceInfo& info = layer_.info();
    std::vector<float> out(index((n + s_.page - 1) / s_.page));
    for (int g = 0; g < info.group(); ++g) {
      const float* const row = layer_.decode_scores(kv_head_ * info.group() + g).row(index(t));
      row_.clear();
      for (std::int64_t i = 0; i < n; ++i) row_.push_back(row[tokens_.position(i)]);
      softmax(row_, 1 / std::sqrt(static_cast<float>(info.head_dim)));
      for (std::size_t i = 0; i < row_.size(); ++i) {
        float& block = out[i / index(s_.page)];
        block = std::max(block, row_[i]);
      }
    }
    return out;
  }

  Ranking ranking_;
  std::vector<float> row_;
};

class Seer final : public RetrievalBy<SeerHead, SeerSetting> {
 public:
  using RetrievalBy::RetrievalBy;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    gate_keys(*shape.model, shape.batch * static_cast<double>(kept) / static_cast<double>(s_.page), ops);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double gate = s_.gate_dim;
    OpId op = gate_keys(*shape.model, shape.batch / static_cast<double>(s_.page), ops);
    // Every KV head has its own matrix for the queries of its group.
    op = ops.compute(Kind::kScore, "gate query",
                     Gemm{static_cast<double>(shape.batch), m.kv_heads * gate, m.group * m.d}, {op});
    const double blocks = shape.sum(&HeadCounts::scored), heads = static_cast<double>(shape.heads.size());
    if (blocks > 0) {
      const Kernel estimate{KernelClass::kScore, (blocks + heads) * gate * m.element, blocks * kScoreBytes,
                            2 * blocks * gate};
      op = ops.compute(Kind::kScore, "gate scores", estimate, {op});
      const double most = std::min(blocks / heads, static_cast<double>(s_.budget / s_.page));
      op = ops.compute(Kind::kTopK, "top-k", TopK{heads, blocks / heads, most, kScoreBytes}, {op});
    }
    ops.done(ops.attention(attention_over(shape, blocks > 0 ? s_.page * m.row() : 0), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    const Dims m(*shape.model);
    const double numbers = shape.model->layers * m.kv_heads * s_.gate_dim * m.element;
    const double blocks = (tokens + s_.page - 1) / s_.page;
    return {in_hbm(Owner::kGateKeys, shape.batch * numbers * blocks),
            in_hbm(Owner::kGateWeights, numbers * (m.group + 3) * m.d, true)};
  }

  Growth growth(const Lengths&) const override {
    return {.scored = 1.0 / s_.page, .fill = s_.threshold == 0 ? s_.budget : 0};
  }

 private:
  // Multiplies the maximum, minimum and mean key of `blocks` blocks of every KV head by a matrix per KV head.
  OpId gate_keys(const config::Model& model, double blocks, LayerOps& ops) const {
    const Dims m(model);
    const double heads = blocks * m.kv_heads, keys = heads * s_.page;
    const Kernel pooled{KernelClass::kReduce, keys * m.row(), 3 * heads * m.row(), 3 * keys * m.d};
    const OpId op = ops.compute(Kind::kIndex, "pool keys", pooled, {ops.ready()});
    return ops.compute(Kind::kIndex, "gate keys", Gemm{blocks, m.kv_heads * s_.gate_dim, 3 * m.d}, {op});
  }
};

Fields<SeerSetting> seer_attention_fields() {
  using S = SeerSetting;
  return Fields<S>()
      .add(budget_parameter("largest number of tokens selected per KV head, to which the last block is added", 4096),
           &S::budget)
      .add(page_parameter(64), &S::page)
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent)
      .add(real("threshold", 0,
                "share of the scores' sum that a block must exceed to be read, even if the budget covers all; 0: "
                "none"),
           &S::threshold)
      .add(whole("gate_dim", 128, "dimensions", "dimension of the gate's queries and keys", 1, 65536), &S::gate_dim);
}

Stages make_seer_attention(const ParameterValues& values) {
  const SeerSetting s = seer_attention_fields().read(values);
  check_page(values.where("budget"), s.budget, s.page);
  check_pages_read(where_fixed(values), s.sink, s.recent, s.page, s.budget / s.page);
  return {keep_all(), std::make_unique<Seer>(s)};
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "seer_attention";
  d.sentence =
      "Keeps everything on the GPU and reads the blocks selected by a gate that is trained on the model's attention.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Gao et al., SeerAttention-R, 2025 (arXiv 2506.08889)";
  d.parameters = seer_attention_fields().parameters();
  d.budget_convention = "at most ⌊budget / page⌋ blocks per KV head, and the last one";
  d.formulas = {"traffic: n_kv·(L/page)·g·b + n_q·d·g·b + 2·n_kv·budget·d·b per step, g = gate_dim",
                "storage: 2·n_kv·L·d·b + n_kv·(L/page)·g·b + n_kv·(group + 3)·d·g·b"};
  d.differences = {
      "traces do not contain the gate: blocks are scored by the weights that the gate learns to predict, so that "
      "selections are better than any trained gate's; the cost is the gate's",
      "the threshold is a share of the sum of these scores, and the budget limits the selection as well; the released "
      "threshold is compared with the gate's softmax",
      "rotary embedding of the gate's queries and keys is not charged"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const SeerSetting s = seer_attention_fields().read(values);
    // The last block, of any length, comes on top unless it is selected.
    BudgetRule rule = chooses(s.budget, s.budget / s.page * s.page, s.page - 1, lengths.prompt_tokens);
    rule.extra = s.page, rule.slack += s.page;
    if (s.threshold > 0) rule.slack = BudgetRule::kAny;
    return rule;
  };
  d.stages = make_seer_attention;
  return d;
}

}  // namespace kvcast::policy::seer_attention
