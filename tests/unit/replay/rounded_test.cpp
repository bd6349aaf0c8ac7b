// Caches in 8 and 4 bits: the rounding of single numbers, and its effect on a policy's selection.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.hpp"
#include "replay/accuracy.hpp"
#include "replay/replay.hpp"
#include "replay/rounded_cache.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

using config::Precision;

std::vector<float> rounded(Precision precision, std::vector<float> row) {
  round_cached(precision, row);
  return row;
}

}  // namespace

TEST_CASE("numbers in E4M3 follow its specification") {
  // The spacing is 1/8 between 1 and 2, and 2 between 16 and 32; 448 is the largest number and 2^-9 the smallest step.
  // Ties go to the even neighbour.
  CHECK(rounded(Precision::kFp8, {1.06f, 1.07f, -1.1f, 17, 19, 500, -1000}) ==
        std::vector<float>{1, 1.125f, -1.125f, 16, 20, 448, -448});
  CHECK(rounded(Precision::kFp8, {0, 0.0009f, 0.0011f, 1.0f / 512}) ==
        std::vector<float>{0, 0, 1.0f / 512, 1.0f / 512});
  CHECK(rounded(Precision::kBf16, {1.06f}) == std::vector<float>{1.06f});
}

TEST_CASE("uniform steps lie between the smallest and the largest number") {
  // 0 … 15 has 15 steps of 1. 0 … 30 has steps of 2: 3 is half-way and is rounded to the even step, 4.
  CHECK(rounded(Precision::kInt4, {0, 15, 3.4f, 7.6f}) == std::vector<float>{0, 15, 3, 8});
  CHECK(rounded(Precision::kInt4, {0, 30, 3, 6.9f}) == std::vector<float>{0, 30, 4, 6});
  CHECK(rounded(Precision::kInt8, {-1, 254, 0.4f, 99.6f}) == std::vector<float>{-1, 254, 0, 100});
  CHECK(rounded(Precision::kInt8, {2, 2, 2}) == std::vector<float>{2, 2, 2});
}

TEST_CASE("keys in a codebook are rotated, rounded to the quantiser of normal numbers, and keep their length") {
  CHECK(rounded(Precision::kInt3, {0, 7, 3.4f, 1.6f}) == std::vector<float>{0, 7, 3, 2});
  // (1, 1)/√2 is (1, 0) after the rotation of order 2: √2 and 0 deviations, of which the codebooks' nearest
  // are 1.343909 and 0.245094, or 1.256231 and 0.128395. As a unit vector, rotated back, times 2.
  const auto expected = [](double a, double b) {
    const double scale = 2 / std::sqrt(2 * (a * a + b * b));
    return std::pair{(a + b) * scale, (a - b) * scale};
  };
  for (const auto& [precision, a, b] :
       {std::tuple{Precision::kCodebook3, 1.343909, 0.245094}, std::tuple{Precision::kCodebook4, 1.256231, 0.128395}}) {
    const std::vector<float> row = rounded(precision, {std::sqrt(2.0f), std::sqrt(2.0f)});
    CHECK(row[0] == Approx(expected(a, b).first).epsilon(1e-5));
    CHECK(row[1] == Approx(expected(a, b).second).epsilon(1e-5));
  }
  CHECK(rounded(Precision::kCodebook4, {0, 0}) == std::vector<float>{0, 0});
}

TEST_CASE("a codebook of normal numbers loses the share that Max computed for it") {
  // Keys of independent normal numbers: mean squared error 0.03454 of their own with 8 levels, 0.009497 with 16 (Max,
  // 1960), with little more for rows of 64.
  const Stream random(7);
  double error[2] = {}, all = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<float> row(64);
    random.normals(static_cast<std::uint64_t>(i) * row.size(), row.size(), row.data());
    const std::vector<float> three = rounded(Precision::kCodebook3, row), four = rounded(Precision::kCodebook4, row);
    for (std::size_t j = 0; j < row.size(); ++j) {
      all += row[j] * row[j];
      error[0] += (three[j] - row[j]) * (three[j] - row[j]), error[1] += (four[j] - row[j]) * (four[j] - row[j]);
    }
  }
  CHECK(error[0] / all == Approx(0.03454).epsilon(0.1));
  CHECK(error[1] / all == Approx(0.009497).epsilon(0.1));
}

TEST_CASE("numbers in FP4 share the scale of their block") {
  // E2M1 has 0, 0.5, 1, 1.5, 2, 3, 4 and 6; 2.5 and 5 are ties. The largest, 6, makes the scale 1.
  CHECK(rounded(Precision::kNvfp4, {6, 0.2f, 0.25f, 0.75f, 1.3f, 2.5f, -3.5f, 5}) ==
        std::vector<float>{6, 0, 0, 1, 1.5f, 2, -4, 4});
  // 16 numbers to a block: the seventeenth is the largest of its own, 12 with scale 2. 13 / 6 is 2.17, in E4M3 2.25.
  std::vector<float> two(17, 0);
  two[0] = 6, two[16] = 12;
  CHECK(rounded(Precision::kNvfp4, two) == two);
  CHECK(rounded(Precision::kNvfp4, {13, 1}) == std::vector<float>{13.5f, 1.125f});
  // Powers of two: 7 has exponent 2, scale 1, and is cut at 6; 8 has scale 2; 32 numbers to a block.
  CHECK(rounded(Precision::kMxfp4, {7, 0.3f}) == std::vector<float>{6, 0.5f});
  CHECK(rounded(Precision::kMxfp4, {8, 0.3f, 1.2f}) == std::vector<float>{8, 0, 1});
  std::vector<float> long_row(33, 0);
  long_row[0] = 8, long_row[32] = 0.5f;
  CHECK(rounded(Precision::kMxfp4, long_row) == long_row);
  CHECK(rounded(Precision::kMxfp4, {0, 0}) == std::vector<float>{0, 0});
}

TEST_CASE("keys and values may have formats of their own") {
  const MemoryTrace trace({.kv_heads = 1, .group = 1, .head_dim = 2, .prompt = 2, .steps = 1, .window = 1},
                          [](trace::Layer& layer) {
                            std::fill_n(layer.mutable_keys(0), 6, 1.06f);
                            std::fill_n(layer.mutable_values(0), 6, 1.06f);
                            std::fill_n(layer.mutable_queries(0), 4, 1.0f);
                          });
  const auto copy = with_rounded_cache(*trace.load(0, 1), {Precision::kFp8, Precision::kBf16}, 1);
  CHECK(copy->keys(0).row(0)[0] == 1.0f);
  CHECK(copy->values(0).row(0)[0] == 1.06f);
}

TEST_CASE("policies select by rounded keys and are evaluated on the unrounded layer") {
  // Keys 1.06 and 1.0 round to the same number in E4M3, so the lower position wins although it is not the better token.
  const MemoryTrace trace({.kv_heads = 1, .group = 1, .head_dim = 2, .prompt = 3, .steps = 1, .window = 1},
                          [](trace::Layer& layer) {
                            const float keys[] = {1.0f, 0, 1.06f, 0, 0.5f, 0, 0.25f, 0};
                            const float values[] = {1, 0, 0, 1, 1, 1, 0, 0};
                            std::copy(std::begin(keys), std::end(keys), layer.mutable_keys(0));
                            std::copy(std::begin(values), std::end(values), layer.mutable_values(0));
                            std::fill_n(layer.mutable_queries(0), 4, 1.0f);
                          });
  const auto chosen = [&](Precision cache) {
    const auto layers = prepare(trace, 1, cache);
    const auto policy = make("exact_topk", "budget: 1", {3, 1});
    return replay::replay(layers, *policy, {1, true});
  };
  const auto exact = chosen(Precision::kBf16), fp8 = chosen(Precision::kFp8);
  CHECK(exact.selections.back().selection.heads[0].attended == std::vector<std::int32_t>{1});
  CHECK(fp8.selections.back().selection.heads[0].attended == std::vector<std::int32_t>{0});
  CHECK(fp8.proxies.recall_mass_mean < exact.proxies.recall_mass_mean);
  CHECK(fp8.proxies.topk_overlap_mean == 0);
  // Attending to all tokens equals full attention without rounding, but not with rounded keys.
  const auto all = [&](Precision cache) {
    const auto policy = make("full", "", {3, 1});
    return replay::replay(prepare(trace, 1, cache), *policy, {}).proxies;
  };
  CHECK(all(Precision::kBf16).output_error_mean == 0);
  CHECK(all(Precision::kFp8).output_error_mean > 0);
  CHECK(all(Precision::kFp8).recall_mass_mean == Approx(1));
}

}  // namespace kvcast::tests
