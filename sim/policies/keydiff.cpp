// KeyDiff (Park et al., "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in
// Resource-Constrained Environments", 2025, arXiv 2504.15364).
//
// Idea: keys that differ from the others receive attention from any query, so that selection needs no query.
// Selection, per KV head: score = −cos(anchor, key), anchor = mean of the normalised keys that the head keeps now; the
// `budget` highest scores stay. Evicts after each prompt block (`block`), and after each decode step, which attends to
// budget + 1 tokens. `recent_fraction` of the budget is a sliding window that is never evicted; the anchor is the mean
// of all held keys, including those of the window. With `share` in place of a budget, a head keeps that share of all
// tokens seen so far, after the prompt and after every `interval` steps (kvpress, compression_ratio_decoding_press.py).
// Cost of ranking n keys: about 6·n·d FLOP per head (count_keydiff). Keys are read twice after a prompt block (anchor,
// then scores) and once in a decode step, in which the running anchor gains one key and loses one; `pairwise`
// multiplies all keys with all. No attention weights are written: attention is as fast as over a full cache of that
// size.
// Storage: 2·n_kv·(budget + 1)·d·b.
#include "policies/keydiff.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

// Rounds down, with a tolerance: 0.1 · 30 is 3, although the floating-point product may be smaller.
std::int64_t part_of(double share, std::int64_t tokens) {
  return static_cast<std::int64_t>(std::floor(share * static_cast<double>(tokens) + 1e-9));
}

struct KeyDiffSetting {
  Quota quota;
  std::int64_t block = 0;
  double recent_fraction = 0;  // share of the budget, instead of quota.recent
  double share = 0;            // of all tokens seen, instead of quota.budget
  std::int64_t interval = 1;   // steps from one eviction to the next, with a share
  Anchor anchor = Anchor::kMean;
  Metric metric = Metric::kCosine;

  // Returns the number of tokens that are kept after `seen` tokens.
  Quota after(std::int64_t seen) const {
    if (share > 0) return {std::max<std::int64_t>(1, part_of(share, seen))};
    Quota now = quota.after(seen);
    if (recent_fraction > 0) now.recent = std::min(part_of(recent_fraction, now.budget), now.budget - now.sink);
    return now;
  }
};

class KeyDiffRule final : public EvictionRule {
 public:
  KeyDiffRule(const LayerInput& layer, const KeyDiffSetting& setting) : layer_(layer.layer()), s_(setting) {}

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    evict(held, end, [&](std::size_t h) {
      score_distinctness(layer_.keys(static_cast<int>(h)), held[h], s_.anchor, s_.metric, scores_);
    });
  }

  void after_step(int t, std::vector<Held>& held) override {
    if (s_.share > 0 && (t + 1) % s_.interval != 0) return;
    for (std::size_t h = running_.size(); h < held.size(); ++h) {
      running_.emplace_back(layer_.keys(static_cast<int>(h)), s_.anchor, s_.metric);
    }
    evict(held, layer_.info().prompt_tokens + t + 1, [&](std::size_t h) { running_[h].score(held[h], scores_); });
  }

 private:
  // rate(head) writes the scores of the head's list to scores_.
  template <typename Rate>
  void evict(std::vector<Held>& held, std::int64_t seen, const Rate& rate) {
    const Quota quota = s_.after(seen);
    for (std::size_t h = 0; h < held.size(); ++h) {
      if (static_cast<std::int64_t>(held[h].size()) <= quota.budget) continue;
      rate(h);
      keep_best(held[h], scores_, quota);
    }
  }

  const trace::Layer& layer_;
  KeyDiffSetting s_;
  std::vector<RunningDistinctness> running_;  // by head, from the first step on
  std::vector<float> scores_;
};

class KeyDiff final : public StepEvictionBy<KeyDiffRule, KeyDiffSetting> {
 public:
  using StepEvictionBy::StepEvictionBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = s_.share > 0 ? policy::tokens_to_rank(shape, kept(shape.start, shape)) : tokens_to_rank(shape);
    if (n == 0) return;
    const double lists = shape.batch * shape.model->n_kv_heads;
    const OpId op = score(*shape.model, lists, n, 2, ops, ops.ready());
    rank_and_compact(*shape.model, lists, n, kept(shape.stop(), shape), ops, op);
  }

  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths& request) const override {
    return {block_, s_.share > 0 ? s_.after(request.prompt_tokens).budget : quota_.budget};
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    if (s_.share == 0) return StepEviction::memory(shape);
    return {
        in_hbm(Owner::kKvCache, kv_bytes(shape, std::min(shape.tokens, s_.after(shape.tokens).budget + s_.interval)))};
  }
  Growth growth(const Lengths& request) const override {
    if (s_.share == 0) return StepEviction::growth(request);
    return {.attended = request.decode_steps < s_.interval ? 1 : s_.share};
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    OpId op = ops.attention(attention_over(shape, 0), {ops.ready()});
    ops.done(op);
    const double lists = shape.heads.size(), held = shape.sum(&HeadCounts::attended) / lists;
    if (s_.share > 0) return evict_share(shape, lists, held, ops, op);
    if (shape.sum(&HeadCounts::evicted) <= 0) return;
    const bool running = s_.anchor == Anchor::kMean || s_.anchor == Anchor::kMeanRaw;
    op = score(*shape.model, lists, held, running ? 1 : 2, ops, op);
    evict_least(shape, lists, ops, op);
  }

 private:
  // Tokens of a list after `seen` tokens of the prompt.
  std::int64_t kept(std::int64_t seen, const PrefillLayer& shape) const {
    return s_.share > 0 ? s_.after(seen).budget : budget(seen, shape.request());
  }

  // An eviction of every `interval`-th step, in equal parts in all of them.
  void evict_share(const DecodeLayer& shape, double lists, double held, LayerOps& ops, OpId op) const {
    const auto evicts = [this](const Sequence& s) { return s.request.decode_steps >= s_.interval ? 1 : 0; };
    lists *= shape.mean_over(evicts) / s_.interval;
    if (lists == 0) return;
    op = score(*shape.model, lists, held, 2, ops, op);
    const std::int64_t stay = s_.after(static_cast<std::int64_t>(shape.mean_tokens())).budget;
    rank_and_compact(*shape.model, lists, held, stay, ops, op);
  }

  // Scores `rows` lists of n keys each, read `passes` times.
  OpId score(const config::Model& model, double rows, double n, double passes, LayerOps& ops, OpId after) const {
    const Dims m(model);
    Kernel work{KernelClass::kScore, rows * passes * n * m.row(), rows * n * kScoreBytes};
    const KeyDiffOperations one = count_keydiff(n, m.d);
    work.flops =
        rows * (s_.anchor == Anchor::kPairwise ? 2 * n * n * m.d
                                               : one.multiplications + one.additions + one.divisions + one.roots);
    return ops.compute(Kind::kScore, "key similarity", work, {after});
  }
};

Fields<KeyDiffSetting> keydiff_fields() {
  using S = KeyDiffSetting;
  return Fields<S>()
      .add(budget_parameter("tokens per KV head kept between steps"), &S::quota, &Quota::budget)
      .add(choice("anchor", {"mean", "mean_raw", "median", "pairwise"},
                  "anchor that keys are compared with: mean of the normalised keys, mean of the unnormalised keys, "
                  "their median, or all pairs"),
           &S::anchor)
      .add(choice("metric", {"cosine", "dot", "euclid"}, "measure of similarity"), &S::metric)
      .add(
          real("recent_fraction", 0.0, "share of the budget for the last tokens, which are never evicted", 0, 0.999999),
          &S::recent_fraction)
      .add(real("share", 0, "share of all tokens seen that a head keeps, in place of a budget; 0: the budget"),
           &S::share)
      .add(whole("interval", 1, "steps", "steps from one eviction to the next, with a share (kvpress: 512)", 1),
           &S::interval)
      .add(growing_parameter(), &S::quota, &Quota::grows)
      .add(block_parameter(), &S::block)
      .add(sink_parameter(), &S::quota, &Quota::sink)
      .add(recent_parameter(), &S::quota, &Quota::recent);
}

std::unique_ptr<Policy> make_keydiff(const ParameterValues& values) {
  KeyDiffSetting s = keydiff_fields().read(values);
  check_quota(values, s.quota);
  for (const char* const key : {"budget", "budget_grows", "sink", "recent", "recent_fraction"}) {
    if (s.share > 0 && values.given(key))
      throw UserError(values.where(key), "keydiff: share takes no " + std::string(key));
  }
  if (s.share == 0 && values.given("interval"))
    throw UserError(values.where("interval"), "keydiff: interval needs share");
  if (s.recent_fraction > 0) {
    if (s.quota.recent > 0) {
      throw UserError(values.where("recent"),
                      "recent and recent_fraction both set the number of last tokens: give one");
    }
    if (s.quota.sink + part_of(s.recent_fraction, s.quota.budget) > s.quota.budget) {
      throw UserError(values.where("recent_fraction"), "sink and the recent fraction together exceed the budget");
    }
  }
  return std::make_unique<KeyDiff>(s);
}

}  // namespace

namespace keydiff {

Descriptor describe() {
  Descriptor d;
  d.name = "keydiff";
  d.sentence = "Keeps the keys that are least similar to the mean key, independent of queries.";
  d.category = Category::kDrop;
  d.paper = "Park et al., KeyDiff, 2025 (arXiv 2504.15364)";
  d.parameters = keydiff_fields().parameters();
  d.budget_convention = "a step attends to budget + 1 tokens, including the current one, then evicts one";
  d.formulas = {"traffic: 2·n_kv·(budget + 1)·d·b per step, and n_kv·(budget + 1)·d·b to rank the keys",
                "ranking n keys: 3nd + n + d multiplications, 3nd − n − 1 additions, 2n + 1 divisions, n + 1 roots",
                "storage: 2·n_kv·(budget + 1)·d·b"};
  d.differences = {"the paper's sections disagree on whether keys are normalised before the mean: anchor: mean_raw",
                   "the anchor of a decode step is charged as a running sum: the keys are read once",
                   "with a share the prompt is compressed too (kvpress joins another press for it), an eviction is "
                   "charged in equal parts to the steps between two, and attention beyond the replay reads the share "
                   "alone, without the tokens added since the last eviction"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& request) {
    const KeyDiffSetting s = keydiff_fields().read(values);
    if (s.share == 0) return evicts_always(s.quota, request);
    BudgetRule rule = evicts_always(s.after(request.bound()).budget);
    rule.extra = s.interval, rule.slack = BudgetRule::kAny;
    return rule;
  };
  d.make = make_keydiff;
  return d;
}

}  // namespace keydiff

}  // namespace kvcast::policy
