#include "study/nearest_budget.hpp"

#include <cmath>
#include <map>

#include "base/error.hpp"

namespace kvcast::study {
namespace {

// Smallest budget in (below, above] that fulfils the predicate, which `above` does and `below` does not.
template <typename Predicate>
std::int64_t first_with(std::int64_t below, std::int64_t above, const Predicate& predicate) {
  while (above - below > 1) {
    const std::int64_t middle = below + (above - below) / 2;
    (predicate(middle) ? above : below) = middle;
  }
  return above;
}

class Search {
 public:
  Search(const BudgetCost& cost, const BudgetRange& range, double target)
      : cost_(cost), range_(range), target_(target) {}

  BudgetSolution run() {
    BudgetSolution solution;
    solution.lowest = at(range_.low), solution.highest = at(range_.high);
    const auto is_in_reach = [&] { return solution.lowest <= target_ && target_ <= solution.highest; };
    if (!is_in_reach()) {
      leave_out_last_step();
      solution.highest = at(range_.high);
    }
    solution.largest = range_.high;
    if (!is_in_reach()) return solution;
    std::int64_t best = range_.low;
    if (solution.lowest < target_) {
      const std::int64_t reaching =
          first_with(range_.low, range_.high, [this](std::int64_t budget) { return at(budget) >= target_; });
      best = error(reaching) < error(reaching - 1) ? reaching : first_of_step(reaching - 1);
    }
    best = nearest_around(best);
    solution.budget = best, solution.reached = at(best);
    return solution;
  }

 private:
  double at(std::int64_t budget) {
    const auto known = known_.find(budget);
    return known != known_.end() ? known->second : known_.emplace(budget, cost_(budget)).first->second;
  }
  double error(std::int64_t budget) { return std::abs(at(budget) - target_); }

  // Ends the range before the budgets that cover everything, if those just below cost more.
  void leave_out_last_step() {
    const std::int64_t before = first_of_step(range_.high) - 1;
    if (before >= range_.low && at(before) > at(range_.high)) range_.high = before;
  }

  // Returns the smallest budget of the same cost.
  std::int64_t first_of_step(std::int64_t budget) {
    const double same = at(budget);
    std::int64_t below = range_.low - 1;
    for (auto at = known_.find(budget); at != known_.begin();) {
      if ((--at)->second == same) continue;
      below = at->first;
      break;
    }
    return first_with(below, budget, [&](std::int64_t smaller) { return at(smaller) == same; });
  }

  // Costs that decrease here and there may leave a neighbour that is nearer.
  std::int64_t nearest_around(std::int64_t budget) {
    while (true) {
      const double here = error(budget);
      if (budget > range_.low && error(budget - 1) < here) {
        --budget;
      } else if (budget < range_.high && error(budget + 1) < here) {
        ++budget;
      } else {
        return budget;
      }
    }
  }

  const BudgetCost& cost_;
  BudgetRange range_;
  double target_;
  std::map<std::int64_t, double> known_;
};

}  // namespace

BudgetSolution nearest_budget(const BudgetCost& cost, const BudgetRange& range, double target) {
  KVCAST_CHECK(range.low <= range.high);
  return Search(cost, range, target).run();
}

std::int64_t smallest_valid(const std::function<bool(std::int64_t)>& is_valid, std::int64_t high) {
  return first_with(0, high, is_valid);
}

}  // namespace kvcast::study
