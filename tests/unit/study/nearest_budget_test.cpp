// Budgets nearest to a cost, for curves whose solution can be derived by hand.
#include "study/nearest_budget.hpp"

#include <catch2/catch.hpp>

#include <map>

namespace kvcast::tests {
namespace {

using study::BudgetSolution;
using study::nearest_budget;

double twice(std::int64_t budget) { return 2.0 * static_cast<double>(budget); }
// Whole pages of 16 tokens.
double pages(std::int64_t budget) { return static_cast<double>(budget / 16 * 16); }

TEST_CASE("the cost of a budget is reached exactly") {
  const BudgetSolution s = nearest_budget(twice, {1, 1000}, 600);
  CHECK(s.budget == 300);
  CHECK(s.reached == 600);
  CHECK(s.lowest == 2);
  CHECK(s.highest == 2000);
}

TEST_CASE("between two budgets the nearer one is taken, and the smaller one if both are equally near") {
  CHECK(nearest_budget(twice, {1, 1000}, 600.5).budget == 300);  // 600 is 0.5 away, 602 is 1.5
  CHECK(nearest_budget(twice, {1, 1000}, 601.5).budget == 301);  // 602 is 0.5 away
  CHECK(nearest_budget(twice, {1, 1000}, 601).budget == 300);    // both are 1 away
  CHECK(nearest_budget(twice, {1, 1000}, 601).reached == 600);
}

TEST_CASE("the smallest of several budgets with the same cost is taken") {
  CHECK(nearest_budget(pages, {16, 4096}, 1000).budget == 992);   // 992 and 1008 are 8 away
  CHECK(nearest_budget(pages, {16, 4096}, 999).budget == 992);    // 7 away, 1008 is 9
  CHECK(nearest_budget(pages, {16, 4096}, 1001).budget == 1008);  // 7 away, 992 is 9
  CHECK(nearest_budget(pages, {16, 4096}, 1008).budget == 1008);
  CHECK(nearest_budget(pages, {20, 4096}, 17).budget == 20);  // only 20 to 31 of this step are in the range
}

TEST_CASE("the ends of the range are reachable, and costs beyond them have no solution") {
  CHECK(nearest_budget(twice, {5, 50}, 10).budget == 5);
  CHECK(nearest_budget(twice, {5, 50}, 100).budget == 50);
  for (const double outside : {9.9, 100.1}) {
    const BudgetSolution s = nearest_budget(twice, {5, 50}, outside);
    CHECK_FALSE(s.budget);
    CHECK(s.lowest == 10);
    CHECK(s.highest == 100);
  }
  CHECK(nearest_budget(twice, {7, 7}, 14).budget == 7);
  // A cost that stays the same from 40 on is reached by the first budget that has it.
  const auto capped = [](std::int64_t budget) { return twice(std::min<std::int64_t>(budget, 40)); };
  CHECK(nearest_budget(capped, {1, 1000}, 80).budget == 40);
}

TEST_CASE("if covering everything costs less than a slightly smaller budget, costs in between are reachable") {
  // Selecting costs 5 more for budgets below 100; from 100 on nothing is selected.
  const auto covers = [](std::int64_t budget) { return budget < 100 ? twice(budget) + 5 : 200.0; };
  CHECK(nearest_budget(covers, {1, 400}, 202).budget == 98);  // 2 · 98 + 5 = 201, 2 · 99 + 5 = 203: both 1 away
  CHECK(nearest_budget(covers, {1, 400}, 203).budget == 99);
  CHECK(nearest_budget(covers, {1, 400}, 150).budget == 72);  // 149; 73 has 151
  const BudgetSolution s = nearest_budget(covers, {1, 400}, 204);
  CHECK_FALSE(s.budget);
  CHECK(s.highest == 203);
  CHECK(s.largest == 99);
}

TEST_CASE("no neighbour is nearer even if the cost does not grow steadily") {
  // 1, 4, 3, 6, 5, 8, 7, ...: budgets from 2 on in swapped pairs.
  const auto zigzag = [](std::int64_t budget) {
    return static_cast<double>(budget == 1 ? 1 : budget % 2 == 0 ? budget + 2 : budget);
  };
  for (int target = 3; target < 200; ++target) {
    const std::int64_t budget = nearest_budget(zigzag, {1, 300}, target).budget.value();
    INFO(target << " by " << budget);
    const double error = std::abs(zigzag(budget) - target);
    if (budget > 1) CHECK(std::abs(zigzag(budget - 1) - target) >= error);
    CHECK(std::abs(zigzag(budget + 1) - target) >= error);
  }
}

TEST_CASE("no budget is evaluated twice, and few are evaluated") {
  std::map<std::int64_t, int> evaluated;
  const auto counted = [&](std::int64_t budget) { return ++evaluated[budget], pages(budget); };
  CHECK(nearest_budget(counted, {16, 1 << 20}, 1003).budget == 1008);
  for (const auto& [budget, times] : evaluated) CHECK(times == 1);
  CHECK(evaluated.size() <= 2 + 20 + 5 + 2);  // the ends, bisecting 2^20 budgets, a step of 2^4 or more, the neighbours
}

TEST_CASE("the smallest valid budget is found") {
  CHECK(study::smallest_valid([](std::int64_t budget) { return budget >= 65; }, 1000) == 65);
  CHECK(study::smallest_valid([](std::int64_t) { return true; }, 1000) == 1);
  CHECK(study::smallest_valid([](std::int64_t budget) { return budget >= 1000; }, 1000) == 1000);
}

}  // namespace
}  // namespace kvcast::tests
