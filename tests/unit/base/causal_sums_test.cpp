// Sums of the columns of causal attention, for every kind of vector instructions of this CPU.
#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "base/causal_sums.hpp"
#include "base/random.hpp"

namespace kvcast::tests {
namespace {

constexpr std::size_t kTile = 1024;  // keys that are taken together

std::vector<double> naive_sums(const MatrixView& queries, const MatrixView& keys, double scale) {
  std::vector<double> sums(keys.rows);
  for (std::size_t i = 0; i < queries.rows; ++i) {
    std::vector<double> row(i + 1);
    double total = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      for (std::size_t c = 0; c < keys.cols; ++c) {
        row[j] += static_cast<double>(queries.row(i)[c]) * static_cast<double>(keys.row(j)[c]);
      }
      total += row[j] = std::exp(scale * row[j]);
    }
    for (std::size_t j = 0; j <= i; ++j) sums[j] += row[j] / total;
  }
  return sums;
}

std::vector<float> normals(std::uint64_t seed, std::size_t n, double deviation) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(deviation * Stream(seed).normal(i));
  return x;
}

}  // namespace

TEST_CASE("sums of causal attention by hand", "[causal_sums]") {
  // One dimension, scale 1. Query 0 sees key 0 alone: weight 1. Query 1, log 3, has the scores 0 and log 3: 1/4 and
  // 3/4.
  const float three = std::log(3.0f);
  const std::vector<float> queries = {7.0f, three}, keys = {0.0f, 1.0f};
  for (const SimdLoops& loops : simd_loops()) {
    std::vector<double> sums = {10.0, 20.0};
    add_causal_sums({queries.data(), 2, 1, 1}, {keys.data(), 2, 1, 1}, 1.0f, sums, {}, loops);
    CHECK(sums[0] == Approx(11.25).epsilon(1e-6));
    CHECK(sums[1] == Approx(20.75).epsilon(1e-6));
  }
}

TEST_CASE("sums of causal attention are those of a loop, at each edge of a tile", "[causal_sums]") {
  constexpr std::size_t kDims = 8, kPad = 3, kMost = 2 * kTile + 5;
  const std::vector<float> keys = normals(1, kMost * (kDims + kPad), 1.0), queries = normals(2, kMost * kDims, 3.0);
  for (const std::size_t n :
       {std::size_t{1}, SimdLoops::kRows - 1, SimdLoops::kRows, SimdLoops::kRows + 1, kTile, kTile + 1, kMost}) {
    const MatrixView q{queries.data(), n, kDims, kDims}, k{keys.data(), n, kDims, kDims + kPad};
    const std::vector<double> expected = naive_sums(q, k, 0.5);
    for (const SimdLoops& loops : simd_loops()) {
      std::vector<double> sums(n);
      add_causal_sums(q, k, 0.5f, sums, {}, loops);
      double all = 0;
      for (std::size_t j = 0; j < n; ++j) {
        CAPTURE(n, j);
        REQUIRE(sums[j] == Approx(expected[j]).epsilon(1e-5).margin(1e-7));
        all += sums[j];
      }
      CHECK(all == Approx(static_cast<double>(n)).epsilon(1e-6));  // each query's weights sum to 1
    }
  }
}

TEST_CASE("scores far below and above those of other keys neither overflow nor vanish", "[causal_sums]") {
  // All of a query's weight lies on the first key, whose score is 1000 above the others, or on its own key.
  constexpr std::size_t kTokens = kTile + 100;
  for (const bool first : {true, false}) {
    std::vector<float> keys(kTokens);
    for (std::size_t j = 0; j < kTokens; ++j)
      keys[j] = first ? (j == 0 ? 1000.0f : 0.0f) : 1000.0f * static_cast<float>(j);
    const std::vector<float> queries(kTokens, 1.0f);
    for (const SimdLoops& loops : simd_loops()) {
      std::vector<double> sums(kTokens);
      add_causal_sums({queries.data(), kTokens, 1, 1}, {keys.data(), kTokens, 1, 1}, 1.0f, sums, {}, loops);
      for (std::size_t j = 0; j < kTokens; ++j) {
        CAPTURE(first, j);
        REQUIRE(sums[j] == Approx(first ? (j == 0 ? kTokens : 0.0) : 1.0).margin(1e-9));
      }
    }
  }
}

TEST_CASE("sums of causal attention stop on request", "[causal_sums]") {
  std::stop_source source;
  source.request_stop();
  const std::vector<float> x(4, 1.0f);
  std::vector<double> sums(4);
  CHECK_THROWS_AS(add_causal_sums({x.data(), 4, 1, 1}, {x.data(), 4, 1, 1}, 1.0f, sums, Cancel(source.get_token())),
                  Cancelled);
}

}  // namespace kvcast::tests
