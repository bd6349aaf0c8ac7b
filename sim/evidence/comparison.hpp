// The rows of a table that its reader compares.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "evidence/record.hpp"

namespace kvcast::evidence {

class Comparisons {
 public:
  explicit Comparisons(const std::vector<Record>& records);

  // Names the comparison of a row: the table, its model and benchmark, the prompt length if the benchmark states one,
  // and the budget as the table states it. A budget that is a share of the prompt is another number of tokens for each
  // task.
  std::string of(const Record& record) const;

 private:
  std::set<std::string> in_shares_;  // tables whose budgets are shares of the prompt
};

}  // namespace kvcast::evidence
