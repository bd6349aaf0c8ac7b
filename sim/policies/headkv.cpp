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
#include <cmath>

#include "policy_parts/prompt_eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

Fields<PromptEviction> fields() {
  using S = PromptEviction;
  Fields<S> all = prompt_eviction_fields(32, "max", 7);
  all.add(real("beta", 1.01, "1/beta of every head's budget goes into the pool that importance shares out", 1, 1e6),
          &S::pool_beta)
      .add(real("power", 1.0, "importance is raised to this before it is shared out", 0, 100), &S::importance_power)
      .add(choice("base", {"without_window", "with_window"},
                  "what is shared out: the budget less the window (released code), or all of it with the "
                  "window on top (KVCache-Factory)"),
           &S::window_in_base)
      .add(choice("scores", {"window", "retrieval_heads"},
                  "what ranks the tokens of a head: its own window scores, or compresskv's"),
           &S::scores, {TokenScores::kWindow, TokenScores::kRetrievalHeads});
  add_retrieval_scores(all);
  return all.add(profile_parameter("importance of heads (retrieval), and semantic scores for scores: retrieval_heads"));
}

}  // namespace

Descriptor describe_headkv() {
  Descriptor d;
  d.name = "headkv";
  d.sentence = "SnapKV with a budget for each head by how much it retrieves, measured beforehand.";
  d.category = "drop";
  d.paper = "Fu et al., HeadKV, 2024 (arXiv 2410.19258)";
  describe_prompt_eviction(d, fields(), {.heads = HeadBudgets::kImportance});
  d.budget_convention =
      "retained: of the prompt, the window included, on average over all heads of the model; generated tokens on top";
  d.formulas = {"traffic: 2·Σ_h (cap_h + w + T)·d·b a step", "storage: the sum of this over layers"};
  d.differences = {
      "importance is the attention on what each probe step must attend to, by kvcast's profile; the paper's "
      "probes also ask for reasoning",
      "the released code's notes say that a higher beta means a bigger pool; by its formula it is smaller"};
  return d;
}

}  // namespace kvcast::policy
