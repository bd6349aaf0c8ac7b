#include "trace/rope.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/matrix.hpp"
#include "base/random.hpp"

namespace kvcast::tests {

using namespace trace;

TEST_CASE("frequencies of Llama 3.1 equal those worked out by hand") {
  config::Rope rope;
  rope.theta = 500000;
  const std::vector<double> plain = rope_frequencies(rope, 128);
  REQUIRE(plain.size() == 64);
  CHECK(plain[0] == 1);
  CHECK(plain[32] == Approx(1.4142136e-3));  // 500000^(−1/2)
  rope.scaling = config::Rope::Scaling::kLinear;
  rope.factor = 8;
  CHECK(rope_frequencies(rope, 128)[32] == Approx(1.4142136e-3 / 8));
  rope.scaling = config::Rope::Scaling::kLlama3;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 8192;
  const std::vector<double> scaled = rope_frequencies(rope, 128);
  // Pair 20: wavelength 2π · 500000^(20/64) = 379 < 8192 / 4: unchanged.
  CHECK(scaled[20] == plain[20]);
  // Pair 63: wavelength 2.6 million > 8192: divided by 8.
  CHECK(scaled[63] == Approx(plain[63] / 8));
  // Pair 32: 8192 · 1.4142136e−3 / 2π = 1.843848 turns; smooth = 0.843848 / 3 = 0.281283;
  // 1.4142136e−3 · (0.718717 / 8 + 0.281283) = 5.248463e−4.
  CHECK(scaled[32] == Approx(5.248463e-4).epsilon(1e-6));
}

TEST_CASE("rotated products depend only on the distance") {
  config::Rope rope;
  const int d = 32;
  RotationTable table(rope_frequencies(rope, d));
  std::vector<float> q(d), k(d);
  Stream(1).normals(0, d, q.data());
  Stream(2).normals(0, d, k.data());
  const auto product = [&](std::int64_t at_q, std::int64_t at_k) {
    std::vector<float> a = q, b = k;
    table.fill(at_q, 1);
    table.rotate(0, a.data());
    table.fill(at_k, 1);
    table.rotate(0, b.data());
    return static_cast<double>(dot(a.data(), b.data(), d));
  };
  for (const std::int64_t lag : {0, 1, 7, 500}) {
    const double near = product(1000, 1000 - lag);
    CHECK(product(600, 600 - lag) == Approx(near).margin(1e-4));
    CHECK(product(100000, 100000 - lag) == Approx(near).margin(2e-3));  // single precision of a table entry is 6e-8
  }
  CHECK(product(5, 5) == Approx(static_cast<double>(dot(q.data(), k.data(), d))).margin(1e-5));
  CHECK(std::fabs(product(1000, 500) - product(1000, 1000)) > 0.1);
}

TEST_CASE("a table has the same bits whichever range of it is filled, and does not drift") {
  config::Rope rope;
  RotationTable table(rope_frequencies(rope, 16));
  const auto turned = [&](std::int64_t first, int n, int row) {
    table.fill(first, n);
    std::vector<float> v(16, 1.0f);
    table.rotate(row, v.data());
    return v;
  };
  CHECK(turned(0, 256, 200) == turned(192, 64, 8));
  CHECK(turned(131072, 64, 63) == turned(131008, 128, 127));
  // Channels 0 and 8 are pair 0, which turns by one radian per token.
  const std::vector<float> v = turned(131072, 64, 63);
  const double angle = 131072 + 63;
  CHECK(static_cast<double>(v[0]) == Approx(std::cos(angle) - std::sin(angle)).margin(1e-6));
  CHECK(static_cast<double>(v[8]) == Approx(std::sin(angle) + std::cos(angle)).margin(1e-6));
}

}  // namespace kvcast::tests
