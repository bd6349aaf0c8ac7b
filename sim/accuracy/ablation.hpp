// Ablations: what predicted scores lose where a part of the trace generator is taken away. Data in
// configs/accuracy/ablations.yaml.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accuracy/score.hpp"
#include "config/yaml.hpp"
#include "synth/recipe.hpp"

namespace kvcast::accuracy {

struct Ablation {
  std::string name;
  std::string takes_away;   // in words
  config::Node set;         // values by "SECTION.KEY" of a recipe
  bool scales_rope = true;  // false: no model's rotary embedding is scaled
};

// UserError with the place for anything odd: a key that recipes do not have or that a replay for scores sets itself
// (shares of heads, what the task is), a value out of its range, a name that stands twice, an ablation that changes
// nothing.
std::vector<Ablation> read_ablations(const std::string& path);

// One by its name, or `all`. UserError naming those that there are.
std::vector<Ablation> choose_ablations(const std::vector<Ablation>& all, const std::string& name);

// Puts the values into a recipe. UserError where they do not go with its others.
void ablate(const Ablation& ablation, trace::Recipe& recipe);

// The change that an ablation makes to the recipes of replayed traces.
score::RecipeChange change_of(const Ablation& ablation);

// What agreement is left and how each method's curve moves: {name, takes_away, n, kendall, spearman, mae, order, pairs,
// refused, methods: {NAME: {shift, curve: [{budget, n, published, predicted, ablated}]}}}, means over the cells that
// both plans predict. The plans hold the same cells in the same order.
nlohmann::json ablation_report(const Ablation& ablation, const Plan& whole, const Plan& ablated);

}  // namespace kvcast::accuracy
