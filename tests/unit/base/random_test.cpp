// Random streams: the published generator, reproducible, with the moments and the independence that the traces need.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <vector>

#include "base/random.hpp"

namespace kvcast::tests {

namespace {

// SplitMix64 as published (Steele, Lea, Flood 2014), as a sequence of states.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};

template <typename T>
Moments moments_of(const std::vector<T>& x) {
  const auto n = static_cast<double>(x.size());
  Moments m;
  for (const T v : x) m.mean += static_cast<double>(v) / n;
  double third = 0, fourth = 0;
  for (const T v : x) {
    const double d = static_cast<double>(v) - m.mean;
    m.variance += d * d / n;
    third += d * d * d / n;
    fourth += d * d * d * d / n;
  }
  m.skewness = third / std::pow(m.variance, 1.5);
  m.kurtosis = fourth / (m.variance * m.variance);
  return m;
}

// The standard errors of n normal draws are 1/sqrt(n), sqrt(2/n), sqrt(6/n) and sqrt(24/n); five of each are allowed.
void check_normal(const Moments& m, double n, double kurtosis_bias) {
  CHECK(std::abs(m.mean) < 5 / std::sqrt(n));
  CHECK(std::abs(m.variance - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(m.skewness) < 5 * std::sqrt(6 / n));
  CHECK(std::abs(m.kurtosis - 3) < 5 * std::sqrt(24 / n) + kurtosis_bias);
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum / static_cast<double>(x.size());
}

std::vector<double> normals_of(const Stream& stream, std::size_t n) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = stream.normal(i);
  return x;
}

}  // namespace

TEST_CASE("the bits are those of SplitMix64 from a mixed seed", "[random]") {
  // The first outputs for the seed 1234567, as listed by Rosetta Code for this generator.
  SplitMix64 published(1234567);
  CHECK(published.next() == 6457827717110365317ull);
  CHECK(published.next() == 3203168211198807973ull);
  CHECK(published.next() == 9817491932198370423ull);

  // A stream's key is the first output for its seed, and its numbers are the outputs from that key on.
  for (const std::uint64_t seed : {0ull, 1ull, 1234567ull, ~0ull}) {
    SplitMix64 sequence(SplitMix64(seed).next());
    const Stream stream(seed);
    for (std::uint64_t i = 0; i < 100; ++i) CHECK(stream.bits(i) == sequence.next());
  }
}

TEST_CASE("random streams have their pinned values, on which every synthetic trace depends", "[random]") {
  const Stream stream(1);
  CHECK(stream.bits(0) == 6791897765849424158ull);
  CHECK(stream.child({3, 5}).bits(7) == 82086257823804135ull);
  CHECK(stream.uniform(2) == 0x1.72becda64fd1p-5);
  CHECK(stream.normal(2) == Approx(-1.6926925951922187).epsilon(1e-14));
  float out[4];
  stream.normals(8, 4, out);
  CHECK(out[1] == Approx(0.51649195f).epsilon(1e-6));
}

TEST_CASE("children are named by order and depth", "[random]") {
  const Stream stream(42);
  CHECK(stream.child({1, 2}).bits(0) == stream.child({1}).child({2}).bits(0));
  CHECK(stream.child({1, 2}).bits(0) != stream.child({2, 1}).bits(0));
  CHECK(stream.child({0}).bits(0) != stream.bits(0));
  CHECK(stream.child({1, 0}).bits(0) != stream.child({1}).bits(0));
}

TEST_CASE("neighbouring names flip half of the bits", "[random]") {
  // Each of the 64 bits differs with probability 1/2: mean 32, standard error over 4000 pairs 4 / sqrt(4000) = 0.063.
  const Stream stream(3);
  double flipped = 0;
  constexpr int kPairs = 4000;
  for (std::uint64_t n = 0; n < kPairs; ++n) {
    flipped += std::popcount(stream.child({n}).bits(0) ^ stream.child({n + 1}).bits(0));
  }
  CHECK(std::abs(flipped / kPairs - 32) < 5 * 0.063);
}

TEST_CASE("uniform numbers fill [0, 1) uniformly", "[random]") {
  constexpr int kBins = 100;
  constexpr int kDraws = 200'000;
  std::vector<int> counts(kBins);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = Stream(9).uniform(i);
    REQUIRE((u >= 0 && u < 1));
    ++counts[static_cast<std::size_t>(u * kBins)];
  }
  // Chi-square with 99 degrees of freedom: mean 99, standard deviation sqrt(198) = 14.1.
  double chi_square = 0;
  for (const int c : counts) chi_square += (c - kDraws / kBins) * (c - kDraws / kBins) / (1.0 * kDraws / kBins);
  CHECK(std::abs(chi_square - 99) < 5 * 14.1);
}

TEST_CASE("below(n) is uniform and never n", "[random]") {
  constexpr std::uint64_t kBelow = 7;
  constexpr int kDraws = 70'000;
  std::vector<int> counts(kBelow);
  const Stream stream(11);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t b = stream.below(i, kBelow);
    REQUIRE(b < kBelow);
    ++counts[b];
  }
  // Binomial with p = 1/7: mean 10000, standard deviation sqrt(70000 · 1/7 · 6/7) = 92.6.
  for (const int c : counts) CHECK(std::abs(c - 10'000) < 5 * 93);
  CHECK(stream.below(0, 1) == 0);
}

TEST_CASE("normal numbers invert the distribution function", "[random]") {
  const Stream stream(5);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    // The stream's uniform number, and the distribution function of the normal number made from it.
    const double u = (static_cast<double>(stream.bits(i) >> 12) + 0.5) * 0x1.0p-52;
    const double x = stream.normal(i);
    const double tail = std::min(u, 1 - u);
    CHECK(std::abs(0.5 * std::erfc(std::abs(x) / std::sqrt(2.0)) - tail) < 1e-13 * (1 + std::abs(x)) + 1e-12 * tail);
    CHECK((x < 0) == (u < 0.5));
  }
}

TEST_CASE("normal numbers have the normal's moments", "[random]") {
  constexpr std::size_t kDraws = 400'000;
  check_normal(moments_of(normals_of(Stream(21), kDraws)), kDraws, 0);
  std::vector<float> fast(kDraws);
  Stream(22).normals(0, kDraws, fast.data());
  check_normal(moments_of(fast), kDraws, 1e-3 * 3);
}

TEST_CASE("fast normals do not depend on the block size", "[random]") {
  const Stream stream(33);
  std::vector<float> whole(64);
  stream.normals(100, 64, whole.data());
  for (const std::uint64_t first : {0ull, 4ull, 20ull, 60ull}) {
    for (std::uint64_t n = 0; first + n <= 64; n += 3) {  // including lengths that are no multiple of 4
      std::vector<float> part(n + 1, -99.0f);
      stream.normals(100 + first, n, part.data());
      for (std::uint64_t i = 0; i < n; ++i) REQUIRE(part[i] == whole[first + i]);
      REQUIRE(part[n] == -99.0f);  // nothing is written beyond
    }
  }
}

TEST_CASE("sibling streams, neighbours and lags are uncorrelated", "[random]") {
  constexpr std::size_t kDraws = 50'000;
  const double allowed = 5 / std::sqrt(static_cast<double>(kDraws));  // standard error of a correlation: 1 / sqrt(n)
  const Stream root(8);
  const std::vector<double> a = normals_of(root.child({0}), kDraws);
  CHECK(std::abs(correlation(a, normals_of(root.child({1}), kDraws))) < allowed);
  CHECK(std::abs(correlation(a, normals_of(root.child({0, 0}), kDraws))) < allowed);
  CHECK(std::abs(correlation(a, normals_of(root, kDraws))) < allowed);
  CHECK(std::abs(correlation(a, normals_of(Stream(9).child({0}), kDraws))) < allowed);
  for (const std::size_t lag : {1u, 2u, 4u, 64u}) {
    const std::vector<double> head(a.begin(), a.end() - static_cast<long>(lag));
    const std::vector<double> shifted(a.begin() + static_cast<long>(lag), a.end());
    CHECK(std::abs(correlation(head, shifted)) < allowed);
  }
}

}  // namespace kvcast::tests
