// CAKE (Qin et al., "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences", ICLR 2025, arXiv
// 2503.12491).
//
// Idea: layers whose attention is spread, and moves from query to query, need more tokens; tokens whose weight varies
// are important.
// Selection after the prompt: a layer's preference is H^(1/tau1)·V^(1/tau2), H = −Σ a·log a and V = Σ of the variances
// over the window's rows, both over all heads and the columns before the window. Layers share (budget − w)·layers
// tokens in proportion. A token's score is the mean plus gamma times the variance of its weights over the rows,
// averaged over the group and pooled. The layer's best tokens and the window are kept.
// `decode_eviction`: a step's own weights, reduced and pooled, rank the tokens before the last w; the cache stays as
// large as after the prompt.
// Cost: SnapKV's with two more passes over the window's scores; decode eviction writes and ranks each step's weights.
// Storage: that of SnapKV in total. The cascade (evicting layer by layer while the prompt is read) ends with the same
// budgets up to rounding; its smaller peak during the prompt is not modelled.
#include "policy_parts/prompt_eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::cake {
namespace {

Fields<PromptEviction> cake_fields() {
  using S = PromptEviction;
  return prompt_eviction_fields(32, "avg", 5, {})
      .add(group_parameter({"mean_weights", "sum_weights", "max_weights"}), &S::group)
      .add(real("gamma", 200.0, "weight of a token's variance relative to its mean", 0, 1e9), &S::gamma)
      .add(real("tau1", 1.0, "temperature of a layer's entropy in its preference", 0.01, 100), &S::tau1)
      .add(real("tau2", 1.0, "temperature of a layer's variance in its preference", 0.01, 100), &S::tau2)
      .add(choice("layers", {"preference", "uniform"},
                  "distribution of the budget over layers: by preference, or equal"),
           &S::layers, {LayerBudgets::kPreference, LayerBudgets::kUniform})
      .add(flag("decode_eviction", false, "also evict at every step, as the released code does"), &S::decode_eviction)
      .add(growing_parameter(), &S::grows);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "cake";
  d.sentence =
      "SnapKV with scores that reward varying attention, and layer budgets by the spread and shift of their attention.";
  d.category = Category::kDrop;
  d.paper = "Qin et al., CAKE, ICLR 2025 (arXiv 2503.12491)";
  const PromptEviction start = {.scores = TokenScores::kVariance};
  describe_prompt_eviction(d, cake_fields(), start);
  d.budget_convention =
      "prompt tokens, including the window, on average over layers; in addition generated tokens or, with "
      "decode_eviction, the current token";
  d.formulas = {"traffic: 2·n_kv·(B_l + T)·d·b per step in layer l, Σ B_l = layers·budget",
                "storage: 2·n_kv·Σ_l (B_l + T)·d·b; with decode_eviction T is at most 1"};
  d.differences = {
      "the released code does not compress prompts up to budget + window; here any prompt over the budget is "
      "compressed",
      "the released code has tables of tau1 and tau2 by model and budget; its fallback is 1 and 1",
      "preferences of layers that the trace lacks are those of the nearest layer in it",
      "the cascade's smaller memory peak during the prompt is not modelled; with block, preferences are "
      "those of the whole prompt"};
  describe_decode_eviction(d, cake_fields(), start);
  return d;
}

}  // namespace kvcast::policy::cake
