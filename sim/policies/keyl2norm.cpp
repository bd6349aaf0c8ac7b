// KeyL2Norm (Devoto et al., "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression", EMNLP 2024, arXiv
// 2406.11430).
//
// Idea: keys of small norm receive the most attention.
// Selection, once after the prompt: per KV head the `budget` tokens of smallest ‖k‖₂ are kept; no token is protected;
// generated tokens are kept. Prompts shorter than `prune_after` are not compressed.
// `decode_eviction`: each step evicts as well, so that `budget` tokens stay (KeyDiff's comparison, arXiv 2504.15364).
// Cost of the prompt: keys read once (n_kv·S·d·b), top-k, compaction; a step reads 2·n_kv·(budget + T)·d·b; decode
// eviction reads the keys once more and finds the largest norm.
// Storage: 2·n_kv·(budget + T)·d·b; T is at most 1 with decode eviction.
#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::keyl2norm {
namespace {

struct NormSetting {
  Quota quota;
  std::int64_t block = 0, prune_after = 0;
  bool every_step = false;
};

class NormRule final : public EvictionRule {
 public:
  NormRule(const LayerInput& layer, const NormSetting& setting) : layer_(layer.layer()), s_(setting) {}

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    if (end >= s_.prune_after) evict(held, s_.quota.after(end));
  }

  void after_step(int t, std::vector<Held>& held) override {
    if (s_.every_step) evict(held, s_.quota.after(layer_.info().prompt_tokens + t + 1));
  }

 private:
  void evict(std::vector<Held>& held, const Quota& quota) {
    for (std::size_t h = 0; h < held.size(); ++h) {
      const MatrixView keys = layer_.keys(static_cast<int>(h));
      scores_.clear();
      for (const std::int32_t i : held[h]) {
        const float* const key = keys.row(index(i));
        scores_.push_back(-dot(key, key, keys.cols));  // has the same ranking as the norm
      }
      keep_best(held[h], scores_, quota);
    }
  }

  const trace::Layer& layer_;
  NormSetting s_;
  std::vector<float> scores_;
};

// Norms of the `n` keys of each list.
OpId score_norms(const config::Model& model, double lists, double n, LayerOps& ops, OpId after) {
  const Dims m(model);
  const Kernel norms{KernelClass::kReduce, lists * n * m.row(), lists * n * kScoreBytes, 2 * lists * n * m.d};
  return ops.compute(Kind::kScore, "key norms", norms, {after});
}

class NormRetention final : public Retention {
 public:
  explicit NormRetention(const NormSetting& setting) : s_(setting), kept_(setting.quota.budget) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    NormRule rule(layer, s_);
    return evict_prompt(rule, prompt_ends(layer.info(), s_.block), layer.info().n_kv_heads);
  }

  std::int64_t kept(const Lengths& request) const override {
    const std::int64_t prompt = request.prompt_tokens;
    return prompt < s_.prune_after ? prompt : std::min(prompt, s_.quota.budget);
  }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    // Nothing is evicted before prune_after.
    const double n = static_cast<double>(shape.start < s_.prune_after ? shape.start : std::min(shape.start, kept_)) +
                     static_cast<double>(shape.length());
    if (shape.stop() < s_.prune_after || n <= static_cast<double>(kept_)) return;
    const double lists = shape.batch * static_cast<double>(shape.model->n_kv_heads);
    const OpId op = score_norms(*shape.model, lists, n, ops, ops.ready());
    rank_and_compact(*shape.model, lists, n, kept_, ops, op);
  }

  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths&) const override {
    return {.tokens = s_.block, .held = kept_, .from = s_.prune_after};
  }

 private:
  NormSetting s_;
  std::int64_t kept_;
};

// Also evicts at every step.
class NormEviction final : public StepEvictionBy<NormRule, NormSetting> {
 public:
  using StepEvictionBy::StepEvictionBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape), lists = shape.batch * shape.model->n_kv_heads;
    if (n == 0) return;
    const OpId op = score_norms(*shape.model, lists, n, ops, ops.ready());
    rank_and_compact(*shape.model, lists, n, budget(shape.stop(), shape.request()), ops, op);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    OpId op = ops.attention(attention_over(shape, 0), {ops.ready()});
    ops.done(op);
    if (shape.sum(&HeadCounts::evicted) <= 0) return;
    const double lists = shape.heads.size();
    op = score_norms(*shape.model, lists, shape.sum(&HeadCounts::attended) / lists, ops, op);
    evict_least(shape, lists, ops, op);
  }
};

Fields<NormSetting> keyl2norm_fields() {
  using S = NormSetting;
  return Fields<S>()
      .add(budget_parameter("prompt tokens kept per KV head"), &S::quota, &Quota::budget)
      .add(whole("prune_after", 0, "tokens", "no eviction before this many prompt tokens have been read"),
           &S::prune_after)
      .add(flag("decode_eviction", false, "also evict at every step, so that the budget bounds the cache"),
           &S::every_step)
      .add(growing_parameter(), &S::quota, &Quota::grows)
      .add(block_parameter(), &S::block)
      .add(sink_parameter(), &S::quota, &Quota::sink)
      .add(recent_parameter(), &S::quota, &Quota::recent);
}

NormSetting read_keyl2norm(const ParameterValues& values) {
  const NormSetting s = keyl2norm_fields().read(values);
  check_quota(values, s.quota);
  if (s.every_step && s.prune_after > 0) {
    throw UserError(values.where("prune_after"),
                    "prune_after leaves short prompts whole, decode_eviction cuts them to the budget: give one");
  }
  if (s.quota.grows && !s.every_step)
    throw UserError(values.where("budget_grows"), "budget_grows: without decode_eviction all generated tokens stay");
  return s;
}

Stages keyl2norm_stages(const ParameterValues& values) {
  const NormSetting s = read_keyl2norm(values);
  if (s.every_step) {
    throw UserError(values.where("decode_eviction"), "keyl2norm is a first stage only without decode_eviction");
  }
  return {std::make_unique<NormRetention>(s), read_all()};
}

std::unique_ptr<Policy> make_keyl2norm(const ParameterValues& values) {
  const NormSetting s = read_keyl2norm(values);
  if (s.every_step) return std::make_unique<NormEviction>(s);
  return two_stages(std::make_unique<NormRetention>(s), read_all());
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "keyl2norm";
  d.sentence = "Keeps the prompt tokens whose keys have the smallest norm, and all generated tokens.";
  d.category = Category::kDrop;
  d.paper = "Devoto et al., L2 Norm-Based KV Cache Compression, EMNLP 2024 (arXiv 2406.11430)";
  d.parameters = keyl2norm_fields().parameters();
  d.budget_convention = "prompt tokens; in addition generated tokens or, with decode_eviction, the current token";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step", "prompt: n_kv·S·d·b to read the keys",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b; with decode_eviction T is at most 1"};
  d.differences = {"the released code keeps a ratio of the prompt, and only from 2048 tokens on: prune_after: 2048",
                   "some code leaves the first two layers uncompressed: first_dense_layers: 2",
                   "KeyDiff's comparison also evicts while decoding: decode_eviction"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const NormSetting s = keyl2norm_fields().read(values);
    if (s.every_step) return evicts_always(s.quota, lengths);
    return evicts_once(lengths.prompt_tokens < s.prune_after ? lengths.prompt_tokens : s.quota.budget);
  };
  d.stages = keyl2norm_stages;
  d.make = make_keyl2norm;
  return d;
}

}  // namespace kvcast::policy::keyl2norm
