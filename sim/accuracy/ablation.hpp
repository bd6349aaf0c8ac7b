// Ablations: the accuracy that predicted scores lose if a part of the trace generator is removed. The data are in
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
  std::string takes_away;   // the removed part, in words
  config::Node set;         // values by "SECTION.KEY" of a recipe
  bool scales_rope = true;  // false: no model's rotary embedding is scaled
};

// Throws UserError with the location of anything invalid: a key that recipes do not have or that a replay for scores
// sets itself (shares of heads, the task), a value out of its range, a duplicate name, or an ablation that changes
// nothing.
std::vector<Ablation> read_ablations(const std::string& path);

// The ablation of this name, or all of them for "all". Throws UserError with the known names if there is none.
std::vector<Ablation> choose_ablations(const std::vector<Ablation>& all, const std::string& name);

// Sets the values in a recipe. Throws UserError if they are inconsistent with its other values.
void ablate(const Ablation& ablation, trace::Recipe& recipe);

// The change that an ablation makes to the recipes of replayed traces.
score::RecipeChange change_of(const Ablation& ablation);

// The remaining agreement and the shift of each method's curve: {name, takes_away, n, kendall, spearman, mae, order,
// pairs, refused, methods: {NAME: {shift, curve: [{budget, n, published, predicted, ablated}]}}}, means over the cells
// that both plans predict. The plans must have the same cells in the same order.
nlohmann::json ablation_report(const Ablation& ablation, const ScoreComparison& whole, const ScoreComparison& ablated);

}  // namespace kvcast::accuracy
