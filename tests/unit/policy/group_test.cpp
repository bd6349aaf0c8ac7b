#include <catch2/catch.hpp>
#include <cmath>

#include "policy/group.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

// Two heads, three units. exp: head 0 gives 1, 2, 1 (sum 4); head 1 gives 4, 2, 2 (sum 8).
std::vector<float> reduced(Group group, float scale = 1) {
  const float ln2 = std::log(2.0f);
  std::vector<float> a = {0, ln2 / scale, 0}, b = {2 * ln2 / scale, ln2 / scale, ln2 / scale};
  const std::span<float> rows[] = {a, b};
  std::vector<float> out(3);
  reduce_group(group, rows, scale, out);
  return out;
}

TEST_CASE("raw scores are summed, averaged or maximized") {
  const float ln2 = std::log(2.0f);
  CHECK(reduced(Group::kSumScores)[0] == Approx(2 * ln2));
  CHECK(reduced(Group::kMeanScores)[1] == Approx(ln2));
  CHECK(reduced(Group::kMaxScores)[2] == Approx(ln2));
}

TEST_CASE("weights are the softmax of the scaled scores of each head") {
  for (const float scale : {1.0f, 0.25f}) {
    // Unit 0: 1/4 and 4/8; unit 1: 2/4 and 2/8; unit 2: 1/4 and 2/8.
    CHECK(reduced(Group::kSumWeights, scale)[0] == Approx(0.75));
    CHECK(reduced(Group::kMeanWeights, scale)[1] == Approx(0.375));
    CHECK(reduced(Group::kMaxWeights, scale)[1] == Approx(0.5));
    CHECK(reduced(Group::kMaxWeights, scale)[2] == Approx(0.25));
  }
}

TEST_CASE("queries of a group are reduced to one, element by element") {
  const float a[] = {1, -4}, b[] = {3, 2};
  const float* const heads[] = {a, b};
  std::vector<float> out(2);
  combine_queries(Group::kMeanQuery, heads, 2, out);
  CHECK(out == std::vector<float>{2, -1});
  combine_queries(Group::kMaxQuery, heads, 2, out);
  CHECK(out == std::vector<float>{3, 2});
}

TEST_CASE("every name means its own agreement") {
  const std::vector<std::pair<std::string, Group>> meant = {
      {"sum_scores", Group::kSumScores},   {"mean_scores", Group::kMeanScores},   {"max_scores", Group::kMaxScores},
      {"sum_weights", Group::kSumWeights}, {"mean_weights", Group::kMeanWeights}, {"max_weights", Group::kMaxWeights},
      {"mean_query", Group::kMeanQuery},   {"max_query", Group::kMaxQuery},       {"per_head", Group::kPerHead}};
  CHECK(group_names().size() == meant.size());
  for (const auto& [name, group] : meant) CHECK(parse_group(name) == group);
}

}  // namespace
}  // namespace kvcast::tests
