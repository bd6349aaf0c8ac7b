// Memory and time that a study will take of this machine, estimated from its configurations before any of its work is
// done, for programs that run the studies of others. An upper bound to about a factor of two, not a prediction.
#pragma once

#include <string>

#include "study/study.hpp"

namespace kvcast::study {

struct Needs {
  double bytes = 0;                      // of memory, at a time
  double seconds = 0;                    // of one core
  std::string most_bytes, most_seconds;  // what takes the most of them: "a trace of 131072 tokens"
};

// The needs of all tasks, of which `threads` run at a time. Scores of benchmarks are not included. Throws UserError as
// Preparer::prepare().
Needs needs_of(const Study& plan, int threads);

// Limits on the needs of a study. 0: none.
struct NeedLimits {
  double bytes = 0, seconds = 0;
};

// A study that would take more than its budget, which is not begun.
class OverBudget : public UserError {
 public:
  using UserError::UserError;
};

// Throws OverBudget naming the needs and the budget. `spent`: seconds of the studies before.
void check_budget(const Needs& needs, const NeedLimits& budget, double spent = 0);

}  // namespace kvcast::study
