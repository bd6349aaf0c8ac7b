// KeyDiff's scores and its count of operations.
#include <catch2/catch.hpp>
#include <numeric>

#include "policies/keydiff.hpp"
#include "policy_parts/ranking.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

// As in the paper: additions and roots count 1, multiplications 3, divisions 47.
double weighted(const KeyDiffOperations& of) {
  return of.additions + of.roots + 3 * of.multiplications + 47 * of.divisions;
}

MatrixView view(const std::vector<float>& keys, std::size_t d) { return {keys.data(), keys.size() / d, d, d}; }

TEST_CASE("KeyDiff's operation count equals a count by hand") {
  // n = 2 keys of d = 3. Multiplications: norms 6, scaling 6, products with the anchor 6, its norm 3, products of norms
  // 2: 23. Additions: norms 4, mean 3, products 4, norm 2, comparisons 2: 15. Divisions: scaling 2, mean 1, scores 2.
  // Roots: 2 + 1. Weighted: 15 + 3 + 3·23 + 47·5 = 322.
  const KeyDiffOperations got = count_keydiff(2, 3);
  CHECK(got.multiplications == 23);
  CHECK(got.additions == 15);
  CHECK(got.divisions == 5);
  CHECK(got.roots == 3);
  CHECK(weighted(got) == 322);
  // In closed form 12·n·d + 97·n + 3·d + 47: linear in the keys.
  CHECK(weighted(count_keydiff(4096, 128)) == 12.0 * 4096 * 128 + 97.0 * 4096 + 3 * 128 + 47);
}

TEST_CASE("anchors and metrics equal those worked out by hand") {
  const std::vector<float> keys = {3, 0, 0, 4, 3, 4, 0, 2};
  const MatrixView matrix = view(keys, 2);
  std::vector<float> out;
  // Mean of the keys (1.5, 2.5): dot products 4.5, 10, 14.5, 5.
  score_distinctness(matrix, {0, 1, 2, 3}, Anchor::kMeanRaw, Metric::kDot, out);
  CHECK(out == std::vector<float>{-4.5f, -10.0f, -14.5f, -5.0f});
  // Without the last key the median is (3, 4): distances 4, 3, 0.
  score_distinctness(matrix, {0, 1, 2}, Anchor::kMedian, Metric::kEuclid, out);
  CHECK(out == std::vector<float>{4, 3, 0});
  // The two middle values of four are (0, 3) in one dimension and (2, 4) in the other: median (1.5, 3); first distance
  // √(1.5² + 3²) = 3.354.
  score_distinctness(matrix, {0, 1, 2, 3}, Anchor::kMedian, Metric::kEuclid, out);
  CHECK(out[0] == Approx(3.3541));
  // Normalised: (1, 0), (0, 1), (.6, .8): mean (.5333, .6); its norm .8028. Cosines .6644, .7474, (.32 + .48) / .8028.
  score_distinctness(matrix, {0, 1, 2}, Anchor::kMean, Metric::kCosine, out);
  CHECK(out[0] == Approx(-0.66437).epsilon(1e-4));
  CHECK(out[1] == Approx(-0.74741).epsilon(1e-4));
  CHECK(out[2] == Approx(-0.99655).epsilon(1e-4));
}

TEST_CASE("distances of many keys by matrix products equal pairwise distances") {
  const MemoryTrace trace = random_trace({.head_dim = 16, .prompt = 1200, .steps = 1}, 6);
  const auto layer = trace.load(0, 1);
  const MatrixView keys = layer->keys(0);
  Held held(1100);
  std::iota(held.begin(), held.end(), 50);
  std::vector<float> got;
  score_distinctness(keys, held, Anchor::kPairwise, Metric::kEuclid, got);
  for (std::size_t i = 0; i < held.size(); i += 97) {
    double sum = 0;
    for (const std::int32_t j : held) {
      double square = 0;
      for (std::size_t c = 0; c < keys.cols; ++c) {
        const double gap = keys.row(static_cast<std::size_t>(held[i]))[c] - keys.row(static_cast<std::size_t>(j))[c];
        square += gap * gap;
      }
      sum += std::sqrt(square);
    }
    CHECK(static_cast<double>(got[i]) == Approx(sum).epsilon(1e-5));
  }
}

TEST_CASE("running scores equal recomputed scores") {
  const MemoryTrace trace = random_trace({.prompt = 90, .steps = 30}, 4);
  const auto layer = trace.load(0, 1);
  const MatrixView keys = layer->keys(0);
  for (const Anchor anchor : {Anchor::kMean, Anchor::kMedian, Anchor::kPairwise}) {
    for (const Metric metric : {Metric::kCosine, Metric::kEuclid}) {
      RunningDistinctness running(keys, anchor, metric);
      Held held(60);
      std::iota(held.begin(), held.end(), 3);
      std::vector<float> got, wanted;
      for (std::int32_t i = 90; i < 120; ++i) {
        held.push_back(i);
        running.score(held, got);
        score_distinctness(keys, held, anchor, metric, wanted);
        REQUIRE(got.size() == wanted.size());
        for (std::size_t j = 0; j < got.size(); ++j) CHECK(got[j] == Approx(wanted[j]).epsilon(1e-5));
        held.erase(held.begin() + i % 7);
        if (i == 100) held.erase(held.begin(), held.begin() + 20);  // many at once
      }
    }
  }
}

TEST_CASE("the mean of normalised keys gives the ranking of all pairs") {
  // Σ_j cos(k_i, k_j), pair by pair in double precision, compared with the anchor's cosine.
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const MemoryTrace trace = random_trace({.prompt = 90}, seed);
    const auto layer = trace.load(0, 1);
    const MatrixView keys = layer->keys(0);
    Held held(90);
    std::iota(held.begin(), held.end(), 0);
    std::vector<float> pairs, mean, pairwise;
    const auto cosine = [&](std::size_t i, std::size_t j) {
      double ij = 0, ii = 0, jj = 0;
      for (std::size_t c = 0; c < keys.cols; ++c) {
        const double a = keys.row(i)[c], b = keys.row(j)[c];
        ij += a * b, ii += a * a, jj += b * b;
      }
      return ij / std::sqrt(ii * jj);
    };
    for (std::size_t i = 0; i < 90; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < 90; ++j) sum += cosine(i, j);
      pairs.push_back(static_cast<float>(-sum));
    }
    score_distinctness(keys, held, Anchor::kMean, Metric::kCosine, mean);
    score_distinctness(keys, held, Anchor::kPairwise, Metric::kCosine, pairwise);
    Ranking ranking;
    std::vector<std::int32_t> by_pairs, by_mean, by_pairwise;
    ranking.rank(pairs, 90, by_pairs);
    ranking.rank(mean, 90, by_mean);
    ranking.rank(pairwise, 90, by_pairwise);
    CAPTURE(seed);
    CHECK(by_mean == by_pairs);
    CHECK(by_pairwise == by_pairs);
  }
}

}  // namespace
}  // namespace kvcast::tests
