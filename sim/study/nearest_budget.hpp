// Finds the budget whose cost is nearest to a target.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace kvcast::study {

struct BudgetRange {
  std::int64_t low = 1, high = 1;
};

struct BudgetSolution {
  double lowest = 0, highest = 0;      // costs in reach
  std::int64_t largest = 0;            // the budget with the highest cost
  std::optional<std::int64_t> budget;  // none if the target is out of reach
  double reached = 0;                  // cost at the budget
};

// The cost of a budget, which grows with it, in steps if a policy has pages.
using BudgetCost = std::function<double(std::int64_t)>;

// Costs are in reach between those of the ends of the range. Policies whose budget covers the whole context do no
// selection, and may cost less than just below: the range then ends there for targets above.
//
// Returns the budget of the range with the smallest error, the smallest of equal ones. If the cost decreases somewhere
// on its way up, no neighbour of the returned budget is nearer to the target. Each budget is evaluated at most once,
// and
// about 2 · log2 of the range's length of them are.
BudgetSolution nearest_budget(const BudgetCost& cost, const BudgetRange& range, double target);

// Returns the smallest valid budget up to `high`, which is valid, as are all above a valid one.
std::int64_t smallest_valid(const std::function<bool(std::int64_t)>& is_valid, std::int64_t high);

}  // namespace kvcast::study
