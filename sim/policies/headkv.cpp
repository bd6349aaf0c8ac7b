// HeadKV (Fu et al., "Not All Heads Matter: A Head-Level KV Cache Compression Method with Integrated Retrieval and
// Reasoning", 2024, arXiv 2410.19258).
//
// Idea: heads that retrieve deserve a larger share of the cache; probes identify them once per model.
// Selection: SnapKV's scores within a budget per head that the model's head profile determines: base − ⌊base/β⌋ tokens
// for each, and a share of the pool of all ⌊base/β⌋ by importance, base = budget − w. A KV head gets the mean of its
// query heads' budgets.
// Variant: `scores: retrieval_heads` ranks tokens by CompressKV's heads within these budgets (HeadCompressKV).
// Cost: SnapKV's, with lists of different lengths.
// Storage: that of SnapKV in total over the model.

#include "policy_parts/prompt_eviction.hpp"

namespace kvcast::policy::headkv {
namespace {

Fields<PromptEviction> headkv_fields() {
  using S = PromptEviction;
  Fields<S> all = prompt_eviction_fields(32, "max", 7);
  all.add(real("beta", 1.01, "1/beta of every head's budget goes into the pool that is distributed by importance", 1,
               1e6),
          &S::pool_beta)
      .add(real("power", 1.0, "exponent of the importance in the distribution", 0, 100), &S::importance_power)
      .add(choice("base", {"without_window", "with_window"},
                  "distributed tokens: the budget less the window (released code), or all of it, with the window in "
                  "addition (KVCache-Factory)"),
           &S::window_in_base)
      .add(choice("scores", {"window", "retrieval_heads"},
                  "ranking of a head's tokens: its own window scores, or compresskv's"),
           &S::scores, {TokenScores::kWindow, TokenScores::kRetrievalHeads});
  add_retrieval_scores(all);
  return all.add(profile_parameter("importance of heads (retrieval), and semantic scores if scores: retrieval_heads"));
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "headkv";
  d.sentence = "SnapKV with a budget for each head by its measured retrieval score.";
  d.category = Category::kDrop;
  d.paper = "Fu et al., HeadKV, 2024 (arXiv 2410.19258)";
  describe_prompt_eviction(d, headkv_fields(), {.heads = HeadBudgets::kImportance});
  d.budget_convention =
      "prompt tokens, including the window, on average over all heads of the model; generated tokens are "
      "kept in addition";
  d.formulas = {"traffic: 2·Σ_h (cap_h + w + T)·d·b per step", "storage: the sum of this over layers"};
  d.differences = {
      "importance is the attention on the targets of each probe step, from the head profile; the paper's probes also "
      "require reasoning",
      "the released code's notes say that a higher beta means a bigger pool; by its formula it is smaller"};
  return d;
}

}  // namespace kvcast::policy::headkv
