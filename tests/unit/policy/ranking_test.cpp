#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "base/random.hpp"
#include "policy_parts/ranking.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

std::vector<std::int32_t> selected(const std::vector<float>& scores, std::size_t k) {
  std::vector<std::int32_t> out;
  Ranking().select(scores, k, out);
  return out;
}

std::vector<std::int32_t> by_full_sort(const std::vector<float>& scores, std::size_t k) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(k, order.size()));
  return order;
}

TEST_CASE("the best positions are returned in ascending order, and ties go to the lower position") {
  // Ranked: 7 (1), 5 (0), 5 (3), 5 (4), 2 (2). The third rank is a tie, which position 3 wins over 4.
  const std::vector<float> scores = {5, 7, 2, 5, 5};
  CHECK(selected(scores, 1) == std::vector<std::int32_t>{1});
  CHECK(selected(scores, 3) == std::vector<std::int32_t>{0, 1, 3});
  CHECK(selected(scores, 4) == std::vector<std::int32_t>{0, 1, 3, 4});
  CHECK(selected(scores, 0).empty());
  CHECK(selected(scores, 9) == std::vector<std::int32_t>{0, 1, 2, 3, 4});
  CHECK(selected({}, 3).empty());
}

TEST_CASE("`rank` orders by score, then by position") {
  const std::vector<float> scores = {5, 7, 2, 5, 5};
  std::vector<std::int32_t> out;
  Ranking().rank(scores, 4, out);
  CHECK(out == std::vector<std::int32_t>{1, 0, 3, 4});
}

TEST_CASE("selection equals a full sort, with ties and without, below and above the size from which it samples") {
  const Stream stream(3);
  for (const std::size_t n : {1u, 2u, 17u, 1000u, 4096u, 5000u, 20000u}) {
    for (const double levels : {3.0, 50.0, 1e9}) {
      std::vector<float> scores;
      for (std::size_t i = 0; i < n; ++i) {
        scores.push_back(static_cast<float>(std::floor(levels * stream.child({n}).uniform(i))));
      }
      for (const std::size_t k : {std::size_t{1}, n / 100, n / 7, n / 2, n - 1, n}) {
        CAPTURE(n, levels, k);
        std::vector<std::int32_t> wanted = by_full_sort(scores, k), ranked;
        Ranking ranking;
        ranking.rank(scores, k, ranked);
        CHECK(ranked == wanted);
        std::sort(wanted.begin(), wanted.end());
        CHECK(selected(scores, k) == wanted);
      }
    }
  }
}

TEST_CASE("a misleading sample does not affect the result") {
  // Evenly spaced large values at the sampled positions: the guess is far too high.
  std::vector<float> scores(16384, 0.0f);
  for (std::size_t i = 8; i < scores.size(); i += 16) scores[i] = 1000.0f + static_cast<float>(i % 64);
  scores[5] = 7;
  std::vector<std::int32_t> wanted = by_full_sort(scores, 1500);
  std::sort(wanted.begin(), wanted.end());
  CHECK(selected(scores, 1500) == wanted);
}

TEST_CASE("a cut contains exactly the selected positions") {
  const std::vector<float> scores = {5, 7, 2, 5, 5};
  const Cut cut = Ranking().cut(scores, 3);
  CHECK(cut.value == 5.0f);
  CHECK(cut.last == 3);
  const bool held[] = {cut.holds(5, 0), cut.holds(7, 1), cut.holds(2, 2), cut.holds(5, 3), cut.holds(5, 4)};
  CHECK(std::equal(std::begin(held), std::end(held), std::begin({true, true, false, true, false})));
}

TEST_CASE("scores that are NaN are never selected and do no harm") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(selected({nan, 1, nan, 3}, 2) == std::vector<std::int32_t>{1, 3});
  std::vector<float> many(10000, nan);
  many[77] = -4;
  many[9000] = 2;
  CHECK(selected(many, 1) == std::vector<std::int32_t>{9000});
  std::vector<std::int32_t> out;
  Ranking().rank(many, many.size(), out);
  REQUIRE(out.size() == many.size());
  // Numbers by value, then NaNs in their original order.
  CHECK(std::vector<std::int32_t>(out.begin(), out.begin() + 5) == std::vector<std::int32_t>{9000, 77, 0, 1, 2});
  CHECK(out.back() == 9999);
}

TEST_CASE("many ranks also order negative scores by value, and zeros of both signs are equal") {
  // In turn −2, −1, −0, 0, 1, 1.5: below and above the size from which ranks are sorted by bits.
  const float cycle[] = {-2, -1, -0.0f, 0, 1, 1.5f};
  for (const std::size_t n : {60u, 6000u}) {
    std::vector<float> scores;
    for (std::size_t i = 0; i < n; ++i) scores.push_back(cycle[i % 6]);
    std::vector<std::int32_t> out;
    Ranking().rank(scores, n, out);
    CHECK(out == by_full_sort(scores, n));
    // A sixth each above zero, twice; the zeros of either sign follow in the order of their positions.
    CHECK(out[n / 3] == 2);
    CHECK(out[n / 3 + 1] == 3);
    CHECK(out[n / 3 + 2] == 8);
  }
}

}  // namespace
}  // namespace kvcast::tests
