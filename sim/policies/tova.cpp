// TOVA (Oren et al., "Transformers are Multi-State RNNs", 2024, arXiv 2401.06104).
//
// Idea: tokens to which the latest query does not attend can be evicted.
// Selection: after the prompt, and after each step, by the weights of the last query alone, averaged over all query
// heads of the layer (`scope: layer`). The `budget` best tokens stay, the same in every head; `scope: group` averages
// over each KV head's query heads. No sink and no recent tokens are protected by default. A step attends to budget + 1
// tokens, then evicts one.
// Cost of the prompt: one query row per head, 2·n_q·S·d FLOP, keys read once, one top-k. Step: weights written (n_q·N·4
// bytes) and averaged, argmin, the free slot overwritten.
// Storage: 2·n_kv·(budget + 1)·d·b.
#include <algorithm>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::tova {
namespace {

struct TovaSetting {
  Quota quota;
  std::int64_t block = 0;
  bool whole_layer = true;
};

class TovaRule final : public EvictionRule {
 public:
  TovaRule(const LayerInput& layer, const TovaSetting& setting)
      : layer_(layer.layer()), rows_(layer.layer()), s_(setting) {
    const std::int64_t prompt = layer.info().prompt_tokens;
    if (prompt <= s_.quota.budget) return;
    require_prompt_queries(layer.info(), prompt_ends(layer.info(), s_.block)[0] - 1,
                           "tova ranks by the last query of the prompt or of each block and turn");
  }

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    evict(held, end, [&](int q_head, const Held& list) {
      const int group = layer_.info().group();
      if (q_head % group == 0) rows_.hold(q_head / group, list);
      rows_.visit(q_head, end - 1, end, [&](std::int64_t, std::span<const float> weights) {
        weights_.assign(weights.begin(), weights.end());
      });
    });
  }

  void after_step(int t, std::vector<Held>& held) override {
    evict(held, layer_.info().prompt_tokens + t + 1,
          [&](int q_head, const Held& list) { step_weights(layer_, q_head, t, list, weights_); });
  }

 private:
  // weigh(q head, list) writes the last query's weights to weights_.
  template <typename Weigh>
  void evict(std::vector<Held>& held, std::int64_t seen, const Weigh& weigh) {
    const Quota quota = s_.quota.after(seen);
    if (static_cast<std::int64_t>(held[0].size()) <= quota.budget) return;
    const trace::TraceInfo& info = layer_.info();
    const int lists = s_.whole_layer ? 1 : info.n_kv_heads;
    const int members = info.n_q_heads / lists;
    for (int h = 0; h < lists; ++h) {
      Held& list = held[index(h)];
      scores_.assign(list.size(), 0.0f);
      for (int g = 0; g < members; ++g) {
        weigh(h * members + g, list);
        for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] += weights_[i];
      }
      for (float& x : scores_) x /= static_cast<float>(members);
      keep_best(list, scores_, quota);
    }
    if (s_.whole_layer) std::fill(held.begin() + 1, held.end(), held[0]);
  }

  const trace::Layer& layer_;
  PromptRows rows_;
  TovaSetting s_;
  std::vector<float> weights_, scores_;
};

class Tova final : public StepEvictionBy<TovaRule, TovaSetting> {
 public:
  using StepEvictionBy::StepEvictionBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape), times = shape.batch;
    if (n == 0) return;
    const Dims m(*shape.model);
    const Kernel row{KernelClass::kScore, times * (m.kv_heads * n + m.q_heads) * m.row(),
                     times * m.q_heads * n * kScoreBytes, 2 * times * m.q_heads * n * m.d};
    OpId op = ops.compute(Kind::kScore, "last query's weights", row, {ops.ready()});
    // FLOP: maximum, difference and exponential, sum, division, mean.
    const Kernel mean{KernelClass::kReduce, times * m.q_heads * n * kScoreBytes,
                      times * lists(*shape.model) * n * kScoreBytes, times * m.q_heads * n * 5};
    op = ops.compute(Kind::kScore, "softmax and mean", mean, {op});
    const double kept = budget(shape.stop(), shape.request());
    rank_and_compact(*shape.model, times * lists(*shape.model), times * m.kv_heads, n, kept, kept, ops, op);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    attend_and_evict(shape, false, lists(*shape.model), ops);
  }

 private:
  double lists(const config::Model& model) const { return s_.whole_layer ? 1 : model.n_kv_heads; }
};

Fields<TovaSetting> tova_fields() {
  using S = TovaSetting;
  return Fields<S>()
      .add(budget_parameter("tokens per KV head kept between steps"), &S::quota, &Quota::budget)
      .add(choice("scope", {"layer", "group"},
                  "query heads whose weights are averaged: all of the layer, or those of a KV head"),
           &S::whole_layer, {true, false})
      .add(growing_parameter(), &S::quota, &Quota::grows)
      .add(block_parameter(), &S::block)
      .add(sink_parameter(), &S::quota, &Quota::sink)
      .add(recent_parameter(), &S::quota, &Quota::recent);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "tova";
  d.sentence = "Drops the tokens to which the latest query attends least, the same ones in all heads of a layer.";
  d.category = Category::kDrop;
  d.paper = "Oren et al., Transformers are Multi-State RNNs, 2024 (arXiv 2401.06104)";
  d.parameters = tova_fields().parameters();
  d.budget_convention = "a step attends to budget + 1 tokens, including the current one, then evicts one";
  d.formulas = {"traffic: 2·n_kv·(budget + 1)·d·b per step, and n_q·(budget + 1)·4 of weights written and read",
                "storage: 2·n_kv·(budget + 1)·d·b"};
  d.differences = {"the released code compacts the cache at every step; here the free slot is overwritten",
                   "kvpress never evicts the last token: recent: 1",
                   "KeyDiff's comparison averages over each KV head's query heads: scope: group"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& request) {
    return evicts_always(tova_fields().read(values).quota, request);
  };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.whole_prompt = tova_fields().read(values).block > 0};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    const TovaSetting s = tova_fields().read(values);
    check_quota(values, s.quota);
    return std::make_unique<Tova>(s);
  };
  return d;
}

}  // namespace kvcast::policy::tova
