#include <catch2/catch.hpp>
#include <cmath>

#include "policy/window.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

std::vector<float> pooled(Pooling kind, int kernel, const std::vector<float>& in) {
  std::vector<float> out;
  pool(kind, kernel, in, out);
  return out;
}

TEST_CASE("the maximum ignores positions beyond the ends") {
  // Kernel 3 over {-1, -3, -2, -5}: max(-1,-3), max(-1,-3,-2), max(-3,-2,-5), max(-2,-5). A zero beyond the ends would
  // win.
  CHECK(pooled(Pooling::kMax, 3, {-1, -3, -2, -5}) == std::vector<float>{-1, -1, -2, -2});
}

TEST_CASE("the maximum is right if the kernel is not a power of two, and ignores NaNs") {
  // Kernel 5: of {9, 1, 2} , {9, 1, 2, 3}, {9, 1, 2, 3, 4}, {1, 2, 3, 4, 0}, {2, 3, 4, 0, 0}, {3, 4, 0, 0}, {4, 0, 0}.
  CHECK(pooled(Pooling::kMax, 5, {9, 1, 2, 3, 4, 0, 0}) == std::vector<float>{9, 9, 9, 4, 4, 4, 4});
  const float nan = std::nanf("");
  CHECK(pooled(Pooling::kMax, 3, {nan, 1, nan, 2}) == std::vector<float>{1, 1, 2, 2});
  CHECK(pooled(Pooling::kMax, 1000000001, {1, 3}) == std::vector<float>{3, 3});
}

TEST_CASE("the average counts zeros beyond the ends and divides by the kernel's width") {
  // Kernel 3 over {3, 6, 9}: (0+3+6)/3, (3+6+9)/3, (6+9+0)/3.
  CHECK(pooled(Pooling::kAverage, 3, {3, 6, 9}) == std::vector<float>{3, 6, 5});
}

TEST_CASE("a kernel wider than the row covers all of it") {
  CHECK(pooled(Pooling::kMax, 63, {1, 4, 2}) == std::vector<float>{4, 4, 4});
  // (1 + 4 + 2) / 7 = 1 at every position.
  CHECK(pooled(Pooling::kAverage, 7, {1, 4, 2}) == std::vector<float>{1, 1, 1});
  CHECK(pooled(Pooling::kMax, 5, {}).empty());
  CHECK(pooled(Pooling::kMax, 1, {2, 1}) == std::vector<float>{2, 1});
}

// Four prompt tokens with scalar keys, one head, d = 1: the scale is 1.
MemoryTrace scalar_trace(int group) {
  return {TraceShape{.kv_heads = 1, .group = group, .head_dim = 1, .prompt = 4, .steps = 1, .window = 2},
          [](trace::Layer& layer) {
            const float ln2 = std::log(2.0f);
            // Keys ln 2 · {0, 1, 2, 0}: with query 1 the exponentials are 1, 2, 4, 1.
            const float keys[] = {0, ln2, 2 * ln2, 0, 0};
            std::copy(std::begin(keys), std::end(keys), layer.mutable_keys(0));
            std::fill_n(layer.mutable_values(0), 5, 0.0f);
            for (int h = 0; h < layer.info().n_q_heads; ++h) {
              // Prompt positions 2 and 3, then the decode query. The second head's query is negative: exponentials
              // 1, 1/2, 1/4, 1.
              const float sign = h == 0 ? 1.0f : -1.0f;
              std::fill_n(layer.mutable_queries(h), 3, sign);
            }
          }};
}

TEST_CASE("window scores are sums of causal softmax rows over the positions before the window") {
  const MemoryTrace trace = scalar_trace(2);
  const auto layer = trace.load(0, 1);
  const WindowScores scores = score_window(*layer, 2);
  // Head 0. Row at position 2 sees 1, 2, 4 (sum 7); row at position 3 sees 1, 2, 4, 1 (sum 8).
  // Position 0: 1/7 + 1/8; position 1: 2/7 + 2/8. Positions 2 and 3 are the window.
  REQUIRE(scores.q_heads.size() == 2);
  REQUIRE(scores.q_heads[0].size() == 2);
  CHECK(scores.q_heads[0][0] == Approx(1.0 / 7 + 1.0 / 8));
  CHECK(scores.q_heads[0][1] == Approx(2.0 / 7 + 2.0 / 8));
  // Head 1. Row 2 sees 1, 1/2, 1/4 (sum 7/4); row 3 sees those and 1 (sum 11/4).
  CHECK(scores.q_heads[1][0] == Approx(4.0 / 7 + 4.0 / 11));
  CHECK(scores.q_heads[1][1] == Approx(2.0 / 7 + 2.0 / 11));

  std::vector<float> reduced;
  reduce_window(scores, 0, 2, Group::kSumWeights, reduced);
  CHECK(reduced[0] == Approx(1.0 / 7 + 1.0 / 8 + 4.0 / 7 + 4.0 / 11));
  reduce_window(scores, 0, 2, Group::kMeanWeights, reduced);
  CHECK(reduced[0] == Approx((1.0 / 7 + 1.0 / 8 + 4.0 / 7 + 4.0 / 11) / 2));
  reduce_window(scores, 0, 2, Group::kMaxWeights, reduced);
  CHECK(reduced[0] == Approx(4.0 / 7 + 4.0 / 11));
  CHECK(reduced[1] == Approx(2.0 / 7 + 2.0 / 8));
}

TEST_CASE("a window longer than the captured prompt queries is rejected with its length") {
  const MemoryTrace trace = scalar_trace(1);
  const auto layer = trace.load(0, 1);
  CHECK_THAT(error_of([&] { score_window(*layer, 3); }),
             Catch::Contains("the last 3 prompt queries are needed") && Catch::Contains("last 2"));
}

}  // namespace
}  // namespace kvcast::tests
