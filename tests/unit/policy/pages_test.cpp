#include <catch2/catch.hpp>

#include "policy/pages.hpp"
#include "policy_parts/page_cache.hpp"
#include "policy_parts/token_list.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

using Positions = std::vector<std::int32_t>;

PageBounds bounds_of(const std::vector<std::vector<float>>& keys, int page, Summary summary) {
  PageBounds bounds(2, page, 1, summary);
  for (const auto& key : keys) bounds.append(key.data());
  return bounds;
}

TEST_CASE("bounds follow the tokens of a page, including the partial one") {
  const PageBounds bounds = bounds_of({{1, -2}, {3, -5}, {0, 4}}, 2, Summary::kMinMax);
  CHECK(bounds.pages() == 2);
  CHECK(bounds.full_pages() == 1);
  CHECK(bounds.tokens_in(0) == 2);
  CHECK(bounds.tokens_in(1) == 1);
  const float* const first = bounds.rows().row(0);  // upper, then lower
  CHECK(std::vector<float>(first, first + 4) == std::vector<float>{3, -2, 1, -5});
  const float* const second = bounds.rows().row(1);
  CHECK(std::vector<float>(second, second + 4) == std::vector<float>{0, 4, 0, 4});
}

TEST_CASE("a cuboid is the box's centre plus and minus the mean distance from it") {
  // Dimension 0: keys 0, 1, 2, 8: centre 4, distances 4, 3, 2, 4: mean 13/4. Dimension 1: all 5: centre 5, distance 0.
  const PageBounds bounds = bounds_of({{0, 5}, {1, 5}, {2, 5}, {8, 5}}, 4, Summary::kCuboidMean);
  const float* const row = bounds.rows().row(0);
  CHECK(row[0] == 7.25f);
  CHECK(row[2] == 0.75f);
  CHECK(row[1] == 5.0f);
  CHECK(row[3] == 5.0f);
}

TEST_CASE("8-bit bounds are the nearest numbers of their format, whatever the order in which keys arrive") {
  // E4M3 has steps of 1/8 between 1 and 2, E5M2 of 1/4: 1.3 is near 1.25 in both, 1.1 near 1.125 and near 1. Between 4
  // and 8 the steps are 1/2 and 1: 5.5 is a number of E4M3, and half-way for E5M2, whose even neighbour is 6.
  const float keys[] = {1.1f, -5.5f, 1.3f, -1.1f};
  const auto row = [&](SummaryFormat format, bool at_once) {
    PageBounds bounds(2, 2, 1, Summary::kMinMax, format);
    at_once ? bounds.append_pages(keys, 1) : (bounds.append(keys), bounds.append(keys + 2));
    const float* const first = bounds.rows().row(0);  // upper, then lower
    return std::vector<float>(first, first + 4);
  };
  for (const bool at_once : {false, true}) {
    CHECK(row(SummaryFormat::kCache, at_once) == std::vector<float>{1.3f, -1.1f, 1.1f, -5.5f});
    CHECK(row(SummaryFormat::kE4m3, at_once) == std::vector<float>{1.25f, -1.125f, 1.125f, -5.5f});
    CHECK(row(SummaryFormat::kE5m2, at_once) == std::vector<float>{1.25f, -1, 1, -6});
  }
}

TEST_CASE("adding whole pages gives the same bounds as adding single tokens") {
  // Page 0: dimension 0 holds 1 and 3 (centre 2, mean distance 1), dimension 1 −2 and −5 (centre −3.5, 1.5).
  // Page 1: 0 and 8 (centre 4, mean distance 4), 4 and 4.
  const float keys[] = {1, -2, 3, -5, 0, 4, 8, 4};
  for (const Summary summary : {Summary::kMinMax, Summary::kCuboidMean}) {
    PageBounds bounds(2, 2, 2, summary);
    bounds.append_pages(keys, 2);
    CHECK(bounds.tokens() == 4);
    REQUIRE(bounds.full_pages() == 2);
    const float* const rows = bounds.rows().row(0);
    // The mean distance of two keys from their centre is half the box: both summaries agree.
    CHECK(std::vector<float>(rows, rows + 8) == std::vector<float>{3, -2, 1, -5, 8, 4, 0, 4});
  }
  // Four keys distinguish the two: 0, 1, 2, 8 as above, then a key that opens the next page.
  const float four[] = {0, 5, 1, 5, 2, 5, 8, 5}, next[] = {9, 9};
  PageBounds cuboid(2, 4, 1, Summary::kCuboidMean);
  cuboid.append_pages(four, 1);
  cuboid.append(next);
  const float* const rows = cuboid.rows().row(0);
  CHECK(std::vector<float>(rows, rows + 8) == std::vector<float>{7.25f, 5, 0.75f, 5, 9, 9, 9, 9});
}

TEST_CASE("a query split by sign picks the bound that makes the product largest") {
  const PageBounds bounds = bounds_of({{1, -2}, {3, -5}}, 2, Summary::kMinMax);
  const float query[] = {2, -1};
  float split[4];
  split_signs(query, 2, split);
  // max(2·1, 2·3) + max(-1·-5, -1·-2) = 6 + 5.
  CHECK(dot(split, bounds.rows().row(0), 4) == 11.0f);
}

TEST_CASE("tokens of pages are truncated at the end of the sequence") {
  Positions out;
  append_page_tokens(Positions{0, 2}, 3, 10, 18, out);
  CHECK(out == Positions{10, 11, 12, 16, 17});
}

TEST_CASE("a page cache evicts the lowest scores but never chosen pages") {
  PageCache cache;
  cache.assign({1, 3, 4, 6});
  const std::vector<float> scores = {0, 9, 8, 2, 2, 7, 1};
  Positions fetched, evicted;
  // Chosen 2 and 6 with 4 slots: two of {1 (9), 3 (2), 4 (2)} stay: 1, and 3 before 4.
  cache.update(Positions{2, 6}, 4, scores, fetched, evicted);
  CHECK(cache.held() == Positions{1, 2, 3, 6});
  CHECK(fetched == Positions{2});
  CHECK(evicted == Positions{4});
  // If all pages fit, none is evicted.
  cache.update(Positions{2}, 9, scores, fetched, evicted);
  CHECK(cache.held() == Positions{1, 2, 3, 6});
  CHECK(fetched.empty());
  CHECK(evicted.empty());
}

TEST_CASE("a list of tokens contains those kept by the first stage, then the generated ones") {
  const Positions kept = {1, 4};
  const TokenList list(6, kept);
  CHECK_FALSE(list.whole());
  CHECK(list.size(0) == 3);
  CHECK(list.position(1) == 4);
  CHECK(list.position(2) == 6);
  CHECK(list.position(4) == 8);
  Positions out;
  list.append_all(1, out);
  CHECK(out == Positions{1, 4, 6, 7});

  const Positions all = {0, 1, 2};
  CHECK(TokenList(3, all).whole());
  const TokenList whole(3);
  CHECK(whole.position(4) == 4);
  out.clear();
  whole.append_all(0, out);
  CHECK(out == Positions{0, 1, 2, 3});
}

}  // namespace
}  // namespace kvcast::tests
