// AdaKV (Feng et al., "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for Efficient LLM Inference",
// 2024, arXiv 2407.11550).
//
// Idea: heads that spread their attention need more tokens than heads that concentrate it.
// Selection: SnapKV's scores; the best base·heads of all heads of the layer together (base = budget − w) say how many
//   each head gets, tempered by a floor: cap = round(count·(1 − floor) + ⌊base·floor⌋); each head keeps its best cap
//   tokens and the window. normalise: a head's scores are first multiplied by the share of its best `base`.
// Variants: `layers: pyramid` (Ada-PyramidKV) or `errors` (CompressKV's layer budgets); `scores: retrieval_heads` ranks
//   tokens by CompressKV's heads within AdaKV's budgets (AdaCompressKV with both).
// Cost: SnapKV's, a ranking over all heads of a layer, and attention over lists of different length: the longest one
//   bounds its time. Storage: SnapKV's in sum.
#include "policy/prompt_eviction.hpp"
#include "policy/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

std::vector<Parameter> parameters() {
  std::vector<Parameter> list = prompt_eviction_parameters(32, "max", 7);
  list.push_back(real("floor", 0.2, "share of the budget that every head gets for certain"));
  list.push_back(flag("normalise", true,
                      "multiply a head's scores by the share of its best ones before heads compete (released "
                      "variant only)"));
  list.push_back(choice("variant", {"released", "kvpress"},
                        "released: counts tempered by the floor; kvpress: the floor's tokens are certain, the rest "
                        "compete as they are"));
  list.push_back(choice("layers", {"uniform", "pyramid", "errors"},
                        "how layers share the budget: equally, as pyramidkv (beta 20), or as compresskv (profile)"));
  list.push_back(choice("scores", {"window", "retrieval_heads"},
                        "what ranks the tokens of a head: its own window scores, or compresskv's (profile)"));
  for (Parameter& p : retrieval_score_parameters()) list.push_back(std::move(p));
  for (Parameter& p : error_budget_parameters()) list.push_back(std::move(p));
  list.push_back(profile_parameter("for layers: errors and scores: retrieval_heads"));
  return list;
}

}  // namespace

Descriptor describe_adakv() {
  Descriptor d;
  d.name = "adakv";
  d.sentence = "SnapKV whose budget moves, within a layer, to the heads whose attention is spread most.";
  d.category = "drop";
  d.paper = "Feng et al., Ada-KV, 2024 (arXiv 2407.11550)";
  d.parameters = parameters();
  d.budget_convention =
      "retained: of the prompt, the window included, on average over the heads of a layer; generated tokens on top";
  d.formulas = {"traffic: 2·Σ_h (cap_h + w + T)·d·b a step", "storage: the same number of bytes"};
  d.differences = {"the released kernel copies the flattened cache at each step; here appending is free",
                   "rounding by head lets the sum differ from heads·base by up to half a token a head",
                   "kvpress masks what it prunes and frees nothing; here it is freed"};
  d.needs = [](const ParameterValues& values, const Lengths&) { return prompt_eviction_needs(values, true); };
  d.stages = [](const ParameterValues& values, const Lengths&) {
    PromptEviction setting = read_prompt_eviction(values);
    setting.heads = HeadBudgets::kAdaptive;
    setting.adaptive.floor = values.number("floor");
    setting.adaptive.normalise = values.flag("normalise");
    setting.adaptive.forced = values.text("variant") == "kvpress";
    std::vector<std::string> kinds;
    if (values.text("layers") == "pyramid") setting.layers = LayerBudgets::kPyramid;
    if (values.text("layers") == "errors") {
      read_error_budgets(values, setting);
      kinds.emplace_back("layer_errors");
    }
    if (values.text("scores") == "retrieval_heads") {
      read_retrieval_scores(values, setting);
      kinds.emplace_back("semantic");
    }
    if (!kinds.empty()) setting.profile = load_profile(values, kinds);
    return Stages{evict_after_prompt(setting), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy
