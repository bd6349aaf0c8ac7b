// DuoAttention (Xiao et al., "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads",
// ICLR 2025, arXiv 2410.10819).
//
// Idea: only retrieval heads need the whole context; for streaming heads a sink and a window suffice.
// Selection: of all KV heads of the model, the share `sparsity` with the lowest scores are streaming heads. They keep
// the first `sink` and the last `recent` tokens, including the current one; all others keep everything. `threshold`:
// heads at or above it keep everything, instead of a share. `budget`: the largest number of full heads for which the
// mean number of tokens stays within it at the longest context (RocketKV's comparison, arXiv 2502.14051, appendix A). A
// budget of at most sink + recent makes all heads stream within it; of at most 2·sink, a fifth of it is the sink.
// Cost: 2·d·b·(n_f·L + (n_kv − n_f)·min(L, sink + recent)) per step, n_f full heads of the layer.
// Storage: the same.
// Limit: sink + recent ≥ all tokens, or sparsity 0, is full attention.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "policy_parts/head_split.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::duo_attention {
namespace {

struct DuoSetting {
  HeadSplit split;
  double sparsity = 0;
  std::optional<double> threshold;
  std::optional<std::int64_t> budget;
};

Fields<DuoSetting> duo_attention_fields() {
  using S = DuoSetting;
  return Fields<S>()
      .add(real("sparsity", 0.5, "share of streaming heads among the KV heads"), &S::sparsity)
      .add(whole("sink", 64, "tokens", "first tokens that streaming heads keep"), &S::split, &HeadSplit::sink)
      .add(whole("recent", 256, "tokens", "last tokens that streaming heads keep, including the current one"),
           &S::split, &HeadSplit::recent)
      .add(real_or("threshold", "none", "instead of sparsity: heads with at least this score keep everything", 0, 1e12),
           &S::threshold)
      .add(whole_or("budget", "none", "tokens",
                    "instead of sparsity: the largest number of full heads for which the mean over heads stays "
                    "within this",
                    1, 1e9),
           &S::budget)
      .add(block_parameter(), &S::split, &HeadSplit::block)
      .add(profile_parameter("retrieval scores of heads"));
}

// Finds the largest number of full heads; up to sink + recent all heads stream, within the budget. RocketKV's appendix
// A shrinks its sink of 128 tokens to a fifth of budgets up to 256.
std::int64_t fit_budget(std::int64_t budget, std::int64_t heads, std::int64_t bound, HeadSplit& split) {
  const std::int64_t streaming = std::min(bound, split.sink + split.recent);
  if (budget >= bound) return heads;
  if (budget > streaming) return heads * (budget - streaming) / (bound - streaming);
  if (budget <= 2 * split.sink) split.sink = budget / 5;
  split.recent = budget - split.sink;
  return 0;
}

std::unique_ptr<Policy> make_duo_attention(const ParameterValues& values) {
  const DuoSetting s = duo_attention_fields().read(values);
  HeadSplit split = s.split;
  split.profile = load_profile(values, {"retrieval"});
  const auto scores = kv_head_scores(*split.profile, "retrieval", HeadReduce::kMean);
  const std::int64_t heads = split.profile->n_layers * split.profile->n_kv_heads;
  if (s.threshold.has_value() + s.budget.has_value() + values.given("sparsity") > 1) {
    throw UserError(values.where(s.budget ? "budget" : "threshold"),
                    "set only one of sparsity, threshold and budget: each determines the streaming heads");
  }
  std::int64_t full = heads - std::llround(s.sparsity * heads);
  if (s.budget) {
    return split_heads([budget = *s.budget, heads, split, scores](const Lengths& request) {
      HeadSplit fitted = split;
      fitted.full = best_heads(scores, fit_budget(budget, heads, request.bound(), fitted));
      return fitted;
    });
  }
  if (s.threshold) {
    full = 0;
    for (const auto& layer : scores) {
      full += std::count_if(layer.begin(), layer.end(), [&](double x) { return x >= *s.threshold; });
    }
  }
  split.full = best_heads(scores, full);
  return split_heads([split](const Lengths&) { return split; });
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "duo_attention";
  d.sentence = "Some heads keep the whole context, the others only the first tokens and a sliding window.";
  d.category = Category::kDrop;
  d.paper = "Xiao et al., DuoAttention, ICLR 2025 (arXiv 2410.10819)";
  d.parameters = duo_attention_fields().parameters();
  d.budget_convention = "on average over all KV heads, at the last decode step";
  d.formulas = {"traffic: 2·d·b·(n_f·L + (n_kv − n_f)·min(L, sink + recent)) per step",
                "storage: the same number of bytes"};
  d.differences = {
      "the paper optimises a gate for each KV head on synthetic data; here a head's score is its measured attention on "
      "the targets of probes, the mean over its query heads",
      "by default the prompt is dense in all heads; in the released code streaming heads evict after each chunk of it: "
      "block"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    return BudgetRule{.tokens = values.integer("budget"),
                      .slack = BudgetRule::kAny,
                      .counts = BudgetRule::Counts::kRetained,
                      .over = BudgetRule::Over::kModel};
  };
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.coupled = true}; };
  d.make = make_duo_attention;
  return d;
}

}  // namespace kvcast::policy::duo_attention
