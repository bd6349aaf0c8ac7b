// AdaKV (Feng et al., "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for Efficient LLM Inference",
// 2024, arXiv 2407.11550).
//
// Idea: heads with spread attention need more tokens than heads with concentrated attention.
// Selection: SnapKV's scores. The number of a head's scores among the best base·heads of the layer (base = budget − w)
// gives its budget, tempered by a floor: cap = round(count·(1 − floor) + ⌊base·floor⌋). Each head keeps its best cap
// tokens and the window. normalise: first multiplies a head's scores by the share of its own best `base`.
// Variants: `layers: pyramid` (Ada-PyramidKV) or `errors` (CompressKV's layer budgets); `scores: retrieval_heads` ranks
// tokens by CompressKV's heads within AdaKV's budgets (AdaCompressKV with both).
// Cost: SnapKV's, a ranking over all heads of a layer, and attention over lists of different lengths, of which the
// longest bounds the time.
// Storage: that of SnapKV in total.
#include "policy_parts/prompt_eviction.hpp"

namespace kvcast::policy::adakv {
namespace {

Fields<PromptEviction> adakv_fields() {
  using S = PromptEviction;
  Fields<S> all = prompt_eviction_fields(32, "max", 7);
  all.add(real("floor", 0.2, "share of the budget that every head is guaranteed"), &S::adaptive, &Adaptive::floor)
      .add(flag("normalise", true,
                "multiply a head's scores by the share of its best ones before heads compete (variant: released only)"),
           &S::adaptive, &Adaptive::normalise)
      .add(choice("variant", {"released", "kvpress"},
                  "released: counts tempered by the floor; kvpress: each head keeps the floor's tokens, the rest "
                  "compete without normalisation"),
           &S::adaptive, &Adaptive::forced)
      .add(choice("layers", {"uniform", "pyramid", "errors"},
                  "distribution of the budget over layers: equal, as pyramidkv (beta 20), or as compresskv (profile)"),
           &S::layers, {LayerBudgets::kUniform, LayerBudgets::kPyramid, LayerBudgets::kErrors})
      .add(choice("scores", {"window", "retrieval_heads"},
                  "ranking of a head's tokens: its own window scores, or compresskv's (profile)"),
           &S::scores, {TokenScores::kWindow, TokenScores::kRetrievalHeads});
  add_retrieval_scores(all);
  add_error_budgets(all);
  return all.add(profile_parameter("if layers: errors or scores: retrieval_heads"));
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "adakv";
  d.sentence = "SnapKV with budgets that are moved, within a layer, to the heads with the most spread attention.";
  d.category = Category::kDrop;
  d.paper = "Feng et al., Ada-KV, 2024 (arXiv 2407.11550)";
  describe_prompt_eviction(d, adakv_fields(), {.heads = HeadBudgets::kAdaptive});
  d.budget_convention =
      "prompt tokens, including the window, on average over the heads of a layer; generated tokens are kept "
      "in addition";
  d.formulas = {"traffic: 2·Σ_h (cap_h + w + T)·d·b per step", "storage: the same number of bytes"};
  d.differences = {"the released kernel copies the flattened cache at each step; here appending is free",
                   "because of rounding by head the sum differs from heads·base by up to half a token per head",
                   "kvpress masks pruned tokens and frees nothing; here they are freed"};
  return d;
}

}  // namespace kvcast::policy::adakv
