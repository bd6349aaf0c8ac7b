// KeyL2Norm (Devoto et al., "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression", EMNLP 2024, arXiv
// 2406.11430).
//
// Idea: keys of small norm receive the most attention.
// Selection, once after the prompt: per KV head the `budget` tokens of smallest ‖k‖₂ are kept; no token is protected;
// generated tokens are kept. Prompts shorter than `prune_after` are not compressed.
// Cost of the prompt: keys read once (n_kv·S·d·b), top-k, compaction; a step reads 2·n_kv·(budget + T)·d·b.
// Storage: the same.
#include <algorithm>

#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

struct NormSetting {
  Quota quota;
  std::int64_t block = 0, prune_after = 0;
};

class NormRule final : public EvictionRule {
 public:
  NormRule(const trace::Layer& layer, const NormSetting& setting) : layer_(layer), s_(setting) {}

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    if (end < s_.prune_after) return;
    for (std::size_t h = 0; h < held.size(); ++h) {
      const MatrixView keys = layer_.keys(static_cast<int>(h));
      scores_.clear();
      for (const std::int32_t i : held[h]) {
        const float* const key = keys.row(static_cast<std::size_t>(i));
        scores_.push_back(-dot(key, key, keys.cols));  // has the same ranking as the norm
      }
      choose_stay(held[h], scores_, s_.quota, stay_);
      keep_only(held[h], stay_);
    }
  }

 private:
  const trace::Layer& layer_;
  NormSetting s_;
  std::vector<float> scores_;
  std::vector<std::int32_t> stay_;
};

class NormRetention final : public Retention {
 public:
  explicit NormRetention(const NormSetting& setting) : s_(setting), kept_(setting.quota.budget) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer) const override {
    NormRule rule(layer.layer(), s_);
    return evict_prompt(rule, prompt_ends(layer.info(), s_.block), layer.info().n_kv_heads);
  }

  std::int64_t kept(std::int64_t prompt) const override {
    return prompt < s_.prune_after ? prompt : std::min(prompt, s_.quota.budget);
  }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    // Nothing is evicted before prune_after.
    const double n = static_cast<double>(shape.start < s_.prune_after ? shape.start : std::min(shape.start, kept_)) +
                     static_cast<double>(shape.length());
    if (shape.stop() < s_.prune_after || n <= static_cast<double>(kept_)) return;
    const Dims m(*shape.model);
    const double lists = shape.batch * m.kv_heads;
    graph::Kernel norms{graph::KernelClass::kReduce, lists * n * m.row(), lists * n * kScoreBytes};
    norms.flops = 2 * lists * n * m.d;
    const graph::OpId op = ops.kernel(graph::Lane::kCompute, graph::Kind::kScore, "key norms", norms, {ops.ready()});
    rank_and_compact(*shape.model, lists, lists, n, static_cast<double>(kept_), static_cast<double>(kept_), ops, op);
  }

  PromptBlocks prompt_blocks(const config::Model&, int) const override {
    return {.tokens = s_.block, .held = kept_, .from = s_.prune_after};
  }

 private:
  NormSetting s_;
  std::int64_t kept_;
};

const Fields<NormSetting>& keyl2norm_fields() {
  using S = NormSetting;
  static const Fields<S> all =
      Fields<S>()
          .add(budget_parameter("prompt tokens kept per KV head"), &S::quota, &Quota::budget)
          .add(whole("prune_after", 0, "tokens", "no eviction before this many prompt tokens have been read"),
               &S::prune_after)
          .add(block_parameter(), &S::block)
          .add(sink_parameter(), &S::quota, &Quota::sink)
          .add(recent_parameter(), &S::quota, &Quota::recent);
  return all;
}

}  // namespace

Descriptor describe_keyl2norm() {
  Descriptor d;
  d.name = "keyl2norm";
  d.sentence = "Keeps the prompt tokens whose keys have the smallest norm, and all generated tokens.";
  d.category = "drop";
  d.paper = "Devoto et al., L2 Norm-Based KV Cache Compression, EMNLP 2024 (arXiv 2406.11430)";
  d.parameters = keyl2norm_fields().parameters();
  d.budget_convention = "retained: prompt tokens; generated tokens are kept in addition";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step", "prompt: n_kv·S·d·b to read the keys",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b"};
  d.differences = {"the released code keeps a ratio of the prompt, and only from 2048 tokens on: prune_after: 2048",
                   "some code leaves the first two layers uncompressed: first_dense_layers: 2"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const NormSetting s = keyl2norm_fields().read(values);
    return evicts_once(lengths.prompt_tokens < s.prune_after ? lengths.prompt_tokens : s.quota.budget);
  };
  d.stages = [](const ParameterValues& values, const Lengths&) {
    const NormSetting setting = keyl2norm_fields().read(values);
    check_quota(values, setting.quota);
    return Stages{std::make_unique<NormRetention>(setting), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy
