// CompressKV (Lin et al., "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important Before Generation",
// 2025, arXiv 2508.02401).
//
// Idea: most heads attend to the ends of the prompt; the few that find the answer's surroundings select for all.
// Selection, once after the prompt: in each layer the semantic retrieval heads (equation 5, from the model's head
// profile) score all tokens with the last `window` queries: sum over rows, pooling, mean over these heads. The best
// tokens and the window are kept, the same in every head of the layer. Layers share the budget by the effect of
// compression on their output (equations 8 to 12, algorithm 1), between `least_layer_budget` and `most_layer_factor`
// budgets; a prompt of at most a layer's own budget stays whole there (listing 1). `ranked_by: retrieval` chooses
// traditional retrieval heads instead (table 2).
// Cost: the window scores of a few heads only (2·h·w·S·d FLOP), one top-k per layer, compaction.
// Storage: that of SnapKV in total.
#include "policies/kivi.hpp"
#include "policy_parts/prompt_eviction.hpp"

namespace kvcast::policy::compresskv {
namespace {

Fields<PromptEviction> compresskv_fields() {
  // There is one ranking per layer, so query heads of a group need no agreement.
  Fields<PromptEviction> all = prompt_eviction_fields(8, "avg", 5, {});
  add_retrieval_scores(all);
  all.add(choice("layers", {"errors", "uniform"},
                 "distribution of the budget over layers: by their error under compression, or equal"),
          &PromptEviction::layers, {LayerBudgets::kErrors, LayerBudgets::kUniform});
  add_error_budgets(all);
  return all.add(quantisation_parameters())
      .add(profile_parameter("scores of heads (ranked_by), and layer errors if layers: errors"));
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "compresskv";
  d.sentence =
      "The heads that find answers select the tokens of all heads; layers that suffer more from compression keep more "
      "tokens.";
  d.category = Category::kDrop;
  d.paper = "Lin et al., CompressKV, 2025 (arXiv 2508.02401)";
  describe_prompt_eviction(d, compresskv_fields(), {.scores = TokenScores::kRetrievalHeads});
  d.budget_convention =
      "prompt tokens, including the window, on average over layers; generated tokens are kept in addition";
  d.formulas = {"traffic: 2·n_kv·(B_l + T)·d·b per step in layer l, Σ B_l = layers·budget",
                "prompt: 2·retrieval_heads·w·S·d FLOP and min(retrieval_heads, n_kv)·S·d·b read",
                "storage: 2·n_kv·Σ_l (B_l + T)·d·b"};
  d.differences = {
      "layer errors are those of the attention output before its projection, which traces do not contain; the paper's "
      "are after it (equations 6 and 7)",
      "layers that the profile lacks have the scores of the nearest layer in it"};
  d.needs = [needs = d.needs](const ParameterValues& values, const Lengths& lengths) {
    ReplayNeeds all = needs(values, lengths);
    if (values.text("quantisation") == "kivi") all.rounds = true, all.unseen = kRoundingUnseen;
    return all;
  };
  d.stages = [stages = d.stages](const ParameterValues& values) {
    return Stages{stages(values).first, read_as_stored(values)};
  };
  return d;
}

}  // namespace kvcast::policy::compresskv
