// H2O (Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models", NeurIPS
// 2023, arXiv 2306.14048).
//
// Idea: a few tokens receive most of the attention; the tokens that have received most so far are kept.
// Selection: each token's weights of all queries so far are summed, over the prompt and then step by step, and averaged
// over the query heads of a KV head (`group`). Once there are more than `budget` tokens, the last `recent` and the best
// of the others stay. A step attends to budget + 1 tokens, adds its weights, and evicts one.
// Cost of the prompt: column sums of the whole causal matrix, n_q·S²·d FLOP, which fused attention does not return: the
// matrix is computed a second time, or written out (n_q·S²/2·4 bytes) as in the released code; top-k; compaction.
// Cost of a step: weights written (n_q·N·4 bytes), added to totals, argmin.
// Storage: 2·n_kv·(budget + 1)·d·b, and 4 bytes per token and list of totals. The trace must contain all prompt
// queries; their weights are summed a few rows at a time.
#include <algorithm>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/heavy_hitters.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {

HeavyHitters::HeavyHitters(const trace::Layer& layer, Group group) : layer_(layer), group_(group), rows_(layer) {
  const trace::TraceInfo& info = layer.info();
  totals_.assign(index(info.n_q_heads), std::vector<double>(index(info.positions()), 0.0));
}

int HeavyHitters::members() const { return group_ == Group::kPerHead ? 1 : layer_.info().group(); }

void HeavyHitters::add_prompt(const LayerInput& layer) {
  const auto sums = layer.prompt_totals();
  for (std::size_t q = 0; q < totals_.size(); ++q) {
    for (std::size_t i = 0; i < (*sums)[q].size(); ++i) totals_[q][i] += (*sums)[q][i];
  }
}

void HeavyHitters::add_block(std::int64_t first, std::int64_t end, const std::vector<Held>& held) {
  for (int q = 0; q < static_cast<int>(totals_.size()); ++q) {
    const Held& list = held[index(q / members())];
    if (q % members() == 0) rows_.hold(q / layer_.info().group(), list);
    sums_.assign(list.size(), 0.0);
    rows_.visit(q, first, end, [&](std::int64_t, std::span<const float> weights) {
      for (std::size_t i = 0; i < weights.size(); ++i) sums_[i] += static_cast<double>(weights[i]);
    });
    std::vector<double>& totals = totals_[index(q)];
    for (std::size_t i = 0; i < list.size(); ++i) totals[index(list[i])] += sums_[i];
  }
}

void HeavyHitters::add_step(int t, const std::vector<Held>& held) {
  for (std::size_t q = 0; q < totals_.size(); ++q) {
    const Held& list = held[q / index(members())];
    step_weights(layer_, static_cast<int>(q), t, list, weights_);
    add(q, list, weights_);
  }
}

void HeavyHitters::add(std::size_t q_head, const Held& list, std::span<const float> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    totals_[q_head][index(list[i])] += static_cast<double>(weights[i]);
  }
}

void HeavyHitters::scores(std::size_t head, const Held& held, std::vector<float>& out) const {
  const auto n = index(members());
  out.resize(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto position = index(held[i]);
    double score = totals_[head * n][position];
    for (std::size_t g = 1; g < n; ++g) {
      const double other = totals_[head * n + g][position];
      score = group_ == Group::kMaxWeights ? std::max(score, other) : score + other;
    }
    out[i] = static_cast<float>(group_ == Group::kMeanWeights ? score / n : score);
  }
}

void sum_prompt_columns(const PrefillLayer& shape, std::int64_t held, bool materialise, LayerOps& ops) {
  const Dims m(*shape.model);
  const auto rows = static_cast<double>(shape.length()), before = static_cast<double>(held);
  const double scores = shape.batch * m.q_heads * (rows * before + rows * (rows + 1) / 2);
  const double queries = shape.batch * m.q_heads * rows * m.row();
  const double keys = shape.batch * m.kv_heads * (before + rows) * m.row(),
               sums = shape.batch * m.q_heads * (before + rows) * kScoreBytes;
  if (materialise) {
    // The preceding attention wrote the weights; here they are written and read once more for their sums.
    const Kernel sum{KernelClass::kReduce, scores * kScoreBytes, scores * kScoreBytes + sums, scores};
    ops.compute(Kind::kScore, "write and sum weights", sum, {ops.ready()});
    return;
  }
  const PrefillAttention again{.flops = 2 * scores * m.d, .read_bytes = queries + keys, .write_bytes = sums};
  ops.compute(Kind::kScore, "column sums", again, {ops.ready()});
}

namespace {

struct H2oSetting {
  Quota quota;
  std::int64_t block = 0;
  Group group = Group::kMeanWeights;
  bool every_step = true, materialise = false;
  bool recent_half = false;  // of the budget, in place of quota.recent

  Quota after(std::int64_t seen) const {
    Quota now = quota.after(seen);
    if (recent_half) now.recent = std::min(now.budget / 2, now.budget - now.sink);
    return now;
  }
};

class H2oRule final : public EvictionRule {
 public:
  H2oRule(const LayerInput& input, const H2oSetting& setting)
      : input_(input), totals_(input.layer(), setting.group), s_(setting) {
    const trace::TraceInfo& info = input.info();
    whole_ = prompt_ends(info, s_.block).size() == 1;
    // A budget that grows covers a request if it covers the prompt.
    evicts_ = (s_.every_step && !s_.quota.grows ? info.positions() : info.prompt_tokens) > s_.quota.budget;
    if (evicts_) require_prompt_queries(info, 0, "h2o sums the weights of all prompt queries");
  }

  void after_block(std::int64_t first, std::int64_t end, std::vector<Held>& held) override {
    if (!evicts_) return;
    if (whole_) {
      totals_.add_prompt(input_);
    } else {
      totals_.add_block(first, end, held);
    }
    evict(held, end);
  }

  void after_step(int t, std::vector<Held>& held) override {
    if (!evicts_ || !s_.every_step) return;
    totals_.add_step(t, held);
    evict(held, input_.info().prompt_tokens + t + 1);
  }

 private:
  void evict(std::vector<Held>& held, std::int64_t seen) {
    const Quota quota = s_.after(seen);
    for (std::size_t h = 0; h < held.size(); ++h) {
      if (static_cast<std::int64_t>(held[h].size()) <= quota.budget) continue;
      totals_.scores(h, held[h], scores_);
      keep_best(held[h], scores_, quota);
    }
  }

  const LayerInput& input_;
  HeavyHitters totals_;
  H2oSetting s_;
  bool evicts_ = false, whole_ = true;  // whole_: the prompt is read at once
  std::vector<float> scores_;
};

class H2o final : public StepEvictionBy<H2oRule, H2oSetting> {
 public:
  explicit H2o(const H2oSetting& setting) : StepEvictionBy(setting, setting.group == Group::kPerHead) {}

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    if (!s_.every_step && shape.prompt_tokens <= quota_.budget) return;
    sum_prompt_columns(shape, std::min(shape.start, budget(shape.start, shape.request())), s_.materialise, ops);
    const double n = tokens_to_rank(shape);
    if (n == 0) return;
    const std::int64_t kept = budget(shape.stop(), shape.request());
    rank_and_compact(*shape.model, shape.batch * lists(*shape.model), n, kept, ops, ops.ready());
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    if (s_.every_step) return attend_and_evict(shape, true, lists(*shape.model), ops);
    ops.done(ops.attention(attention_over(shape, 0), {ops.ready()}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const std::int64_t prompt = std::min(shape.lengths.prompt_tokens, quota_.budget);
    const std::int64_t held = s_.every_step ? std::min(shape.tokens, budget(shape.tokens, shape.lengths) + 1)
                                            : prompt + shape.tokens - shape.lengths.prompt_tokens;
    std::vector<MemoryItem> items = {in_hbm(Owner::kKvCache, kv_bytes(shape, held, per_query_head_))};
    if (s_.every_step) {
      const double totals = shape.batch * shape.model->layers * lists(*shape.model) * held;
      items.push_back(in_hbm(Owner::kAttentionTotals, totals * kScoreBytes));
    }
    return items;
  }

  Growth growth(const Lengths& request) const override {
    return s_.every_step ? StepEviction::growth(request) : Growth{.attended = 1};
  }

 private:
  double lists(const config::Model& model) const { return per_query_head_ ? model.n_q_heads : model.n_kv_heads; }
};

Fields<H2oSetting> h2o_fields() {
  using S = H2oSetting;
  return Fields<S>()
      .add(budget_parameter("tokens per list kept between steps"), &S::quota, &Quota::budget)
      .add(whole_or("recent", "half", "tokens",
                    "last tokens that are never evicted, including the current one; half: half of the budget", 0, 1e9),
           &S::quota, &Quota::recent)
      .add(sink_parameter(), &S::quota, &Quota::sink)
      .add(group_parameter({"mean_weights", "sum_weights", "max_weights", "per_head"}), &S::group)
      .add(flag("decode_eviction", true, "also evict after each step; false: only after the prompt"), &S::every_step)
      .add(growing_parameter(), &S::quota, &Quota::grows)
      .add(block_parameter(), &S::block)
      .add(column_sums_parameter(), &S::materialise);
}

std::unique_ptr<Policy> make_h2o(const ParameterValues& values) {
  H2oSetting s = h2o_fields().read(values);
  s.recent_half = values.is_text("recent");
  if (s.recent_half) s.quota.recent = s.quota.budget / 2;
  check_quota(values, s.quota);
  if (s.recent_half) s.quota.recent = 0;
  if (s.quota.grows && !s.every_step)
    throw UserError(values.where("budget_grows"), "budget_grows: without decode_eviction all generated tokens stay");
  return std::make_unique<H2o>(s);
}

}  // namespace

Parameter column_sums_parameter() {
  return choice("column_sums", {"recompute", "materialise"},
                "method of summing the prompt's weights: a second pass over queries and keys, or writing all weights");
}

namespace h2o {

Descriptor describe() {
  Descriptor d;
  d.name = "h2o";
  d.sentence = "Keeps the last tokens and those that have received the most attention so far.";
  d.category = Category::kDrop;
  d.paper = "Zhang et al., H2O, NeurIPS 2023 (arXiv 2306.14048)";
  d.parameters = h2o_fields().parameters();
  d.budget_convention = "a step attends to budget + 1 tokens, including the current one, then evicts one";
  d.formulas = {"traffic: 2·n_kv·(budget + 1)·d·b per step, n_q·(budget + 1)·4 of weights written and read, totals",
                "prompt: n_q·S·(S + 1)·d FLOP for the column sums",
                "storage: 2·n_kv·(budget + 1)·d·b + 4·n_kv·(budget + 1) (n_q instead of n_kv per head)"};
  d.differences = {
      "the released code evicts per query head: group: per_head; the average over the group is KeyDiff's "
      "version of H2O (arXiv 2504.15364, appendix F.2)",
      "some code evicts after the prompt only: decode_eviction: false",
      "with block, a token's total counts the queries of its own and later blocks while it is held"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& request) {
    const H2oSetting s = h2o_fields().read(values);
    return s.every_step ? evicts_always(s.quota, request) : evicts_once(s.quota.budget);
  };
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.whole_prompt = true}; };
  d.make = make_h2o;
  return d;
}

}  // namespace h2o

}  // namespace kvcast::policy
