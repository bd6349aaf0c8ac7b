// How well scores are estimated that the evidence does not have: whole tables, models and methods are left out in turn,
// and the estimate stands beside the simulation alone, a lookup in the published rows, and the full score.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {

// What a prediction has no rows of; of a length, prompts that are at least a quarter longer than the model's known
// ones.
enum class Novelty { kTable, kLength, kModel, kMethod };
inline constexpr std::size_t kNovelties = 4;
inline constexpr Novelty kAllNovelties[kNovelties] = {Novelty::kTable, Novelty::kLength, Novelty::kModel,
                                                      Novelty::kMethod};
inline constexpr double kLonger = 1.25;
std::string_view novelty_name(Novelty novelty);  // "table", "length", "model", "method"

// The published share of the same method and task whose budget is nearest in ratio, of the same model where there is
// one, as a score of the setting's full one. Without rows of the method, of all methods on the task at the nearest
// budget; without these, the full score.
double look_up(const std::vector<Record>& records, const Setting& setting, const IsLeftOut& is_left_out);

struct LeftOut {
  const Record* record;
  Estimate estimate;
  double lookup = 0;
  std::string group;  // that was left out with it
};

// Each record once, with all of its table, model or method left out. Of lengths, only records of benchmarks that name
// lengths, of prompts longer than the model's shortest, with all that are as long or longer left out.
std::vector<LeftOut> leave_out(const JointFit& fit, Novelty novelty);

// Half-width of intervals over the estimate's deviation, with which 80 % of these published scores are within; that of
// a normal distribution where there are none.
double spread_of(const std::vector<const LeftOut*>& left_out);

// What was left out, with intervals whose spread was chosen on the other groups: nothing of its group was seen but by
// the components and the noise.
struct HeldOut {
  const LeftOut* row;
  bool within = false;  // the interval
};
std::vector<HeldOut> held_out(const std::vector<LeftOut>& left_out);

// Sum over families of the logarithm of the mean error in points: what components are chosen by.
double log_error(const std::vector<LeftOut>& left_out);

}  // namespace kvcast::evidence
