// CompressKV (Lin et al., "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important Before Generation",
// 2025, arXiv 2508.02401).
//
// Idea: most heads look at the ends of the prompt; the few that find the answer's surroundings should choose for all.
// Selection, once after the prompt: in each layer the semantic retrieval heads (equation 5, from the model's profile)
//   score all tokens with the last `window` queries: sum over rows, pooling, mean over these heads; the best tokens and
//   the window stay, the same in every head of the layer. Layers share the budget by what compression does to their
//   output (equations 8 to 12, algorithm 1), between `least_layer_budget` and `most_layer_factor` budgets.
// Cost: the window scores of a few heads alone (2·h·w·S·d FLOP), one top-k a layer, compaction. Storage: SnapKV's in
// sum.
#include "policy/kivi.hpp"
#include "policy/prompt_eviction.hpp"
#include "policy/shared_parameters.hpp"

namespace kvcast::policy {

Descriptor describe_compresskv() {
  Descriptor d;
  d.name = "compresskv";
  d.sentence = "Lets the heads that find answers choose the tokens of all heads, with more tokens where loss hurts.";
  d.category = "drop";
  d.paper = "Lin et al., CompressKV, 2025 (arXiv 2508.02401)";
  d.parameters = prompt_eviction_parameters(8, "avg", 5);
  // One ranking a layer: query heads of a group have nothing to agree on.
  std::erase_if(d.parameters, [](const Parameter& p) { return p.key == "group"; });
  for (Parameter& p : retrieval_score_parameters()) d.parameters.push_back(std::move(p));
  d.parameters.push_back(choice("layers", {"errors", "uniform"},
                                "how layers share the budget: by their error under compression, or equally"));
  for (Parameter& p : error_budget_parameters()) d.parameters.push_back(std::move(p));
  for (Parameter& p : quantisation_parameters()) d.parameters.push_back(std::move(p));
  d.parameters.push_back(profile_parameter("semantic scores of heads, and layer errors for layers: errors"));
  d.budget_convention =
      "retained: of the prompt, the window included, on average over layers; generated tokens come on top";
  d.formulas = {"traffic: 2·n_kv·(B_l + T)·d·b a step in layer l, Σ B_l = layers·budget",
                "prompt: 2·retrieval_heads·w·S·d FLOP and min(retrieval_heads, n_kv)·S·d·b read",
                "storage: 2·n_kv·Σ_l (B_l + T)·d·b"};
  d.differences = {
      "layer errors are of the attention output before its projection, where traces end; the paper's are "
      "after it (equations 6 and 7)",
      "layers that the profile's trace does not hold have the scores of the nearest one that it does"};
  d.needs = [](const ParameterValues& values, const Lengths&) {
    ReplayNeeds needs = prompt_eviction_needs(values, true);
    if (values.text("quantisation") == "kivi") needs.unseen = kRoundingUnseen;
    return needs;
  };
  d.stages = [](const ParameterValues& values, const Lengths&) {
    PromptEviction setting = read_prompt_eviction(values);
    read_retrieval_scores(values, setting);
    std::vector<std::string> kinds = {"semantic"};
    if (values.text("layers") == "errors") {
      read_error_budgets(values, setting);
      kinds.emplace_back("layer_errors");
    }
    setting.profile = load_profile(values, kinds);
    return Stages{evict_after_prompt(setting), read_as_stored(values)};
  };
  return d;
}

}  // namespace kvcast::policy
