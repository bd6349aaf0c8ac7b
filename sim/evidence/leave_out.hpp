// Accuracy of estimates for scores that are missing from the evidence: whole tables, lengths, models and methods are
// left out in turn, and the estimate is compared with the simulation alone, a lookup in the published rows, and the
// full score.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {

// The property of a prediction that no row has. A new length is a prompt at least a quarter longer than the model's
// known ones.
enum class Novelty { kTable, kLength, kModel, kMethod };
inline constexpr std::size_t kNovelties = 4;
inline constexpr Novelty kAllNovelties[kNovelties] = {Novelty::kTable, Novelty::kLength, Novelty::kModel,
                                                      Novelty::kMethod};
inline constexpr double kLonger = 1.25;
std::string_view novelty_name(Novelty novelty);  // "table", "length", "model", "method"

// Published share of the full score for the same method and task at the budget nearest in ratio, from the same model if
// possible, times the setting's full score. Without rows of the method: of all methods on the task at the nearest
// budget; without these: the full score.
double look_up(const std::vector<ScoreRecord>& records, const ScoredTask& setting, const IsLeftOut& is_left_out);

struct LeftOutScore {
  const ScoreRecord* record;
  Estimate estimate;
  double lookup = 0;
  std::string group;  // records that were left out together
};

// Estimates each record once, with all of its table, model or method left out. For lengths: only records of benchmarks
// that state lengths, with prompts longer than the model's shortest; all records that are as long or longer are left
// out.
std::vector<LeftOutScore> leave_out(const JointFit& fit, Novelty novelty);

// Sum over families of the logarithm of the mean error in points: the objective by which components are chosen.
double log_error(const std::vector<LeftOutScore>& left_out);

}  // namespace kvcast::evidence
