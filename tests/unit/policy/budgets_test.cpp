// Budgets over layers and heads, worked out by hand next to each assertion.
#include <catch2/catch.hpp>
#include <numeric>

#include "base/random.hpp"
#include "policy_parts/budgets.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

TEST_CASE("PyramidKV's budgets fall in equal integer steps over the layers") {
  // base 120, beta 20: least 6, most 240 − 6 = 234, step ⌊(234 − 6) / 4⌋ = 57.
  CHECK(pyramid_budgets({120, 1000, 8, 20}, 5) == Budgets{234, 177, 120, 63, 6});
  // step ⌊228 / 3⌋ = 76: no token is lost to rounding; ⌊228 / 7⌋ = 32: the last layer keeps 234 − 7·32 = 10 in place of
  // 6.
  CHECK(pyramid_budgets({120, 1000, 8, 20}, 4) == Budgets{234, 158, 82, 6});
  CHECK(pyramid_budgets({120, 1000, 8, 20}, 8).back() == 10);
}

TEST_CASE("PyramidKV adapts to short prompts") {
  // 230 tokens before a window of 10 are fewer than 234, so most 230, least 240 − 230 = 10, step ⌊220 / 4⌋ = 55.
  CHECK(pyramid_budgets({120, 230, 10, 20}, 5) == Budgets{230, 175, 120, 65, 10});
  // A prompt of 229 + 10 = 239 < 2·120 tokens: no pyramid.
  CHECK(pyramid_budgets({120, 229, 10, 20}, 5) == Budgets(5, 120));
  CHECK(pyramid_budgets({120, 1000, 8, 20}, 1) == Budgets{234});
}

TEST_CASE("kvpress's pyramid has fractional steps and includes the window") {
  // base 100, beta 10: least 10, most 190, step 180 / 7 = 25.714: 190, 164.29, 138.57, 112.86, 87.14, 61.43, 35.71, 10.
  CHECK(smooth_pyramid_budgets({100, 1000, 8, 10}, 8) == Budgets{190, 164, 139, 113, 87, 61, 36, 10});
  // A window of 11 would not fit in a last layer of 10.
  CHECK(smooth_pyramid_budgets({100, 1000, 11, 10}, 8) == Budgets(8, 100));
  // 18 tokens before a window of 20 are fewer than 33.3, so most 18 and least 40 − 18 = 22, more than that.
  CHECK(smooth_pyramid_budgets({20, 18, 20, 3}, 3) == Budgets(3, 20));
}

TEST_CASE("CompressKV's budgets follow its algorithm 1") {
  // 4 layers of 100: total 400, 32 each, 272 to share: .1 .2 .3 .4 of it are 27.2 54.4 81.6 108.8, rounded 27 54 82
  // 109.
  const std::vector<double> scores = {0.1, 0.2, 0.3, 0.4};
  CHECK(error_aware_budgets(scores, 400, 32, 300) == Budgets{59, 86, 114, 141});
  // At most 120: the sum is 59 + 86 + 114 + 120 = 379; 21 more go to the best below 120: 6 to layer 2, 15 to layer 1.
  CHECK(error_aware_budgets(scores, 400, 32, 120) == Budgets{59, 101, 120, 120});
  // Shares of 1/3 of 10 are 3.33 each, 3 apiece: the one left over goes to the first of equals.
  const std::vector<double> equal(3, 1.0 / 3);
  CHECK(error_aware_budgets(equal, 10, 0, 10) == Budgets{4, 3, 3});
  // Shares of 5.5 and 5.5 round to 6 and 6 (halves to even): one too many, taken from the first of equals.
  const std::vector<double> halves = {0.5, 0.5};
  CHECK(error_aware_budgets(halves, 11, 0, 11) == Budgets{5, 6});
  // All layers are at their maximum: the remainder is not distributed.
  CHECK(error_aware_budgets(halves, 100, 0, 20) == Budgets{20, 20});
}

TEST_CASE("CompressKV's budgets add up to the total if the bounds allow it") {
  const Stream stream(3);
  for (std::uint64_t run = 0; run < 300; ++run) {
    const Stream s = stream.child({run});
    std::vector<double> scores(2 + run % 30);
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = std::pow(s.uniform(i), 4);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& x : scores) x /= sum;
    const std::int64_t budget = 32 + static_cast<std::int64_t>(run) * 3;
    const Budgets got = error_aware_budgets(scores, budget * static_cast<std::int64_t>(scores.size()), 32, 3 * budget);
    CAPTURE(run);
    CHECK(std::accumulate(got.begin(), got.end(), std::int64_t{0}) ==
          budget * static_cast<std::int64_t>(scores.size()));
    for (const std::int64_t b : got) CHECK((b >= 32 && b <= 3 * budget));
  }
}

TEST_CASE("CAKE's layers share the budget by preference") {
  // 1 : 2 : 1 of 10 is 2.5, 5, 2.5, cut to 2 5 2; the one left over goes to the first layer.
  const std::vector<double> preferences = {1, 2, 1};
  CHECK(preference_budgets(preferences, 10, 100) == Budgets{3, 5, 2});
  // Capped at 4: 2 4 2 leave 2, one each for the two layers below the cap.
  CHECK(preference_budgets(preferences, 10, 4) == Budgets{3, 4, 3});
  CHECK(preference_budgets(preferences, 30, 4) == Budgets{4, 4, 4});
  CHECK(preference_budgets(std::vector<double>{0, 0}, 6, 100) == Budgets{3, 3});
}

TEST_CASE("AdaKV assigns budgets by the best scores of all heads") {
  const std::vector<std::vector<float>> scores = {{8, 7, 6, 5}, {1, 1, 9, 1}};
  // The best 2·2 of all: 9 8 7 6: three of head 0, one of head 1.
  CHECK(adaptive_budgets({2, 0.0, false}, scores) == Budgets{3, 1});
  // Floor 0.5: 3·0.5 + ⌊2·0.5⌋ = 2.5 and 1·0.5 + 1 = 1.5, halves to even: 2 and 2.
  CHECK(adaptive_budgets({2, 0.5, false}, scores) == Budgets{2, 2});
  // Normalised: head 0 times (8 + 7) / 26 = .577: 4.62 4.04 3.46 2.88; head 1 times (9 + 1) / 12 = .833: .83 .83 7.5
  // .83. The best four: 7.5 4.62 4.04 3.46.
  CHECK(adaptive_budgets({2, 0.0, true}, scores) == Budgets{3, 1});
  // kvpress, floor 0.5: each head's best ⌊2·.5⌋ = 1 is always kept, then 7 and 6.
  CHECK(adaptive_budgets({2, 0.5, true, true}, scores) == Budgets{3, 1});
  // Floor 1: everything is always kept.
  CHECK(adaptive_budgets({2, 1.0, true, true}, scores) == Budgets{2, 2});
}

TEST_CASE("HeadKV's heads share a common pool by importance") {
  // base 100, beta 4: ⌊25⌋ of each of 4 heads, 100 in the pool; every head keeps 75.
  CHECK(importance_budgets(std::vector<double>{0.5, 0.25, 0.25, 0}, 100, 4) == std::vector<double>{125, 100, 100, 75});
  // beta 1.01: ⌊99.0099⌋ = 99, pool 396, 1 for each.
  CHECK(importance_budgets(std::vector<double>{0.5, 0.25, 0.25, 0}, 100, 1.01) ==
        std::vector<double>{199, 100, 100, 1});
}

}  // namespace
}  // namespace kvcast::tests
