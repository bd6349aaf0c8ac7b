// HeadKV (Fu et al., "Not All Heads Matter: A Head-Level KV Cache Compression Method with Integrated Retrieval and
// Reasoning", 2024, arXiv 2410.19258).
//
// Idea: heads that retrieve deserve more of the cache; probes say once and for all which they are.
// Selection: SnapKV's scores within a budget a head that the model's profile fixes: base − ⌊base/β⌋ tokens for each and
//   a share of the pool of all ⌊base/β⌋ by importance, base = budget − w. A KV head gets the mean of its query heads'.
// Variant: `scores: retrieval_heads` ranks tokens by CompressKV's heads within these budgets (HeadCompressKV).
// Cost: SnapKV's; lists of different length. Storage: SnapKV's in sum over the model.
#include <cmath>

#include "policy/prompt_eviction.hpp"
#include "policy/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

std::vector<Parameter> parameters() {
  std::vector<Parameter> list = prompt_eviction_parameters(32, "max", 7);
  list.push_back(
      real("beta", 1.01, "1/beta of every head's budget goes into the pool that importance shares out", 1, 1e6));
  list.push_back(real("power", 1.0, "importance is raised to this before it is shared out", 0, 100));
  list.push_back(choice("base", {"without_window", "with_window"},
                        "what is shared out: the budget less the window (released code), or all of it with the "
                        "window on top (KVCache-Factory)"));
  list.push_back(choice("scores", {"window", "retrieval_heads"},
                        "what ranks the tokens of a head: its own window scores, or compresskv's"));
  for (Parameter& p : retrieval_score_parameters()) list.push_back(std::move(p));
  list.push_back(profile_parameter("importance of heads (retrieval), and semantic scores for scores: retrieval_heads"));
  return list;
}

}  // namespace

Descriptor describe_headkv() {
  Descriptor d;
  d.name = "headkv";
  d.sentence = "SnapKV with a budget for each head by how much it retrieves, measured beforehand.";
  d.category = "drop";
  d.paper = "Fu et al., HeadKV, 2024 (arXiv 2410.19258)";
  d.parameters = parameters();
  d.budget_convention =
      "retained: of the prompt, the window included, on average over all heads of the model; generated tokens on top";
  d.formulas = {"traffic: 2·Σ_h (cap_h + w + T)·d·b a step", "storage: the sum of this over layers"};
  d.differences = {
      "importance is the attention on what each probe step must attend to, by kvcast's profile; the paper's "
      "probes also ask for reasoning",
      "the released code's notes say that a higher beta means a bigger pool; by its formula it is smaller"};
  d.needs = [](const ParameterValues& values, const Lengths&) { return prompt_eviction_needs(values, true); };
  d.stages = [](const ParameterValues& values, const Lengths&) {
    PromptEviction setting = read_prompt_eviction(values);
    setting.heads = HeadBudgets::kImportance;
    setting.pool_beta = values.number("beta");
    setting.importance_power = values.number("power");
    setting.window_in_base = values.text("base") == "with_window";
    std::vector<std::string> kinds = {"retrieval"};
    if (values.text("scores") == "retrieval_heads") {
      read_retrieval_scores(values, setting);
      kinds.emplace_back("semantic");
    }
    setting.profile = load_profile(values, kinds);
    return Stages{evict_after_prompt(setting), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy
