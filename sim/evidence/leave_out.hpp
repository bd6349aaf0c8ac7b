// How well scores are estimated that the evidence does not have: whole tables, models and methods are left out in turn,
// and the estimate stands beside the simulation alone, a lookup in the published rows, and the full score.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {

enum class Novelty { kTable, kModel, kMethod };  // what a prediction has no rows of
inline constexpr std::size_t kNovelties = 3;
std::string_view novelty_name(Novelty novelty);  // "table", "model", "method"

// The published share of the same method and task whose budget is nearest in ratio, of the same model where there is
// one, as a score of the setting's full one. Without rows of the method, of all methods on the task at the nearest
// budget; without these, the full score. Rows for which `is_left_out` holds are not seen.
double look_up(const std::vector<Record>& records, const Setting& setting,
               const std::function<bool(const Record&)>& is_left_out);

// Shares of estimate, simulation and lookup in a prediction; they add up to 1.
struct Stack {
  double estimate = 1, simulation = 0, lookup = 0;
};

struct LeftOut {
  const Record* record;
  Estimate estimate;
  double lookup = 0;

  double stacked(const Stack& stack) const {
    return stack.estimate * estimate.mean + stack.simulation * record->simulated + stack.lookup * lookup;
  }
};

// Each record once, with all of its table, model or method left out.
std::vector<LeftOut> leave_out(const JointFit& fit, Novelty novelty);

// The shares by which predictions of what is new in this way have the least error; in sixths.
Stack best_stack(const std::vector<LeftOut>& left_out);

// How far off published scores were, in angles over the estimate's deviation: what 80 % of them are within.
double spread_of(const std::vector<LeftOut>& left_out, const Stack& stack);

// Mean logarithm of the density of what was left out, with heavy tails: what components are chosen by.
double log_density(const std::vector<LeftOut>& left_out);

}  // namespace kvcast::evidence
