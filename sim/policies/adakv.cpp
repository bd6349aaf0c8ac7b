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
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

Fields<PromptEviction> fields() {
  using S = PromptEviction;
  Fields<S> all = prompt_eviction_fields(32, "max", 7);
  all.add(real("floor", 0.2, "share of the budget that every head gets for certain"), &S::adaptive, &Adaptive::floor)
      .add(flag("normalise", true,
                "multiply a head's scores by the share of its best ones before heads compete (released "
                "variant only)"),
           &S::adaptive, &Adaptive::normalise)
      .add(choice("variant", {"released", "kvpress"},
                  "released: counts tempered by the floor; kvpress: the floor's tokens are certain, the rest "
                  "compete as they are"),
           &S::adaptive, &Adaptive::forced)
      .add(choice("layers", {"uniform", "pyramid", "errors"},
                  "how layers share the budget: equally, as pyramidkv (beta 20), or as compresskv (profile)"),
           &S::layers, {LayerBudgets::kUniform, LayerBudgets::kPyramid, LayerBudgets::kErrors})
      .add(choice("scores", {"window", "retrieval_heads"},
                  "what ranks the tokens of a head: its own window scores, or compresskv's (profile)"),
           &S::scores, {TokenScores::kWindow, TokenScores::kRetrievalHeads});
  add_retrieval_scores(all);
  add_error_budgets(all);
  return all.add(profile_parameter("for layers: errors and scores: retrieval_heads"));
}

}  // namespace

Descriptor describe_adakv() {
  Descriptor d;
  d.name = "adakv";
  d.sentence = "SnapKV whose budget moves, within a layer, to the heads whose attention is spread most.";
  d.category = "drop";
  d.paper = "Feng et al., Ada-KV, 2024 (arXiv 2407.11550)";
  describe_prompt_eviction(d, fields(), {.heads = HeadBudgets::kAdaptive});
  d.budget_convention =
      "retained: of the prompt, the window included, on average over the heads of a layer; generated tokens on top";
  d.formulas = {"traffic: 2·Σ_h (cap_h + w + T)·d·b a step", "storage: the same number of bytes"};
  d.differences = {"the released kernel copies the flattened cache at each step; here appending is free",
                   "rounding by head lets the sum differ from heads·base by up to half a token a head",
                   "kvpress masks what it prunes and frees nothing; here it is freed"};
  return d;
}

}  // namespace kvcast::policy
