// Smoothing over three coordinates, compared with values by hand and with known surfaces.
#include "calibrate/smooth.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/random.hpp"

namespace kvcast::tests {

using calibrate::SmoothSample;

namespace {

// A lattice of 12 by 12, folds along its diagonals as in calibrations.
template <typename Value>
std::vector<SmoothSample> lattice(const Value& value) {
  std::vector<SmoothSample> samples;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 12; ++j) {
      const double x = i, y = j;
      samples.push_back({{x, y, double(i % 2)}, value(x, y, samples.size()), 1, (i + 3 * j) % 4});
    }
  }
  return samples;
}

double noise(std::size_t i) { return 0.02 * (2 * Stream(5).uniform(i) - 1); }

}  // namespace

TEST_CASE("the weight of a single sample follows from its noise and its distance") {
  // Weight 1 / (1 + noise); covariance (1 + √3 d) e^(-√3 d) at d = |(3/2, 4/2)| = 2.5: (1 + 4.3301) · 0.013167 =
  // 0.07018.
  const std::vector<SmoothSample> one{{{0, 0, 0}, 0.5}};
  const calibrate::Surface surface(one, {{2, 2, 1}, 0.25});
  CHECK(surface.at({0, 0, 0}) == Approx(0.5 / 1.25));
  CHECK(surface.at({3, 4, 0}) == Approx(0.4 * 0.07018).epsilon(1e-3));
  CHECK(std::abs(surface.at({100, 0, 0})) < 1e-12);
}

TEST_CASE("two samples at one point count as their mean with half the noise") {
  // (K + noise) w = y with K all ones: w1 + w2 = (y1 + y2) / (2 + noise).
  const std::vector<SmoothSample> two{{{1, 2, 3}, 0.2}, {{1, 2, 3}, 0.6}};
  CHECK(calibrate::Surface(two, {{1, 1, 1}, 0.5}).at({1, 2, 3}) == Approx(0.8 / 2.5));
}

TEST_CASE("a deviation that neighbours share is found, and predicts samples that were left out") {
  const auto samples =
      lattice([](double x, double y, std::size_t i) { return 0.3 * std::sin(x / 2) * std::cos(y / 3) + noise(i); });
  const calibrate::Smoothing found = calibrate::choose_smoothness(samples);
  CHECK(found.loss < 0.1 * found.loss_before);
  CHECK(found.spread < 0.04);  // noise of ±0.02, and the part of it that the surface absorbs
}

TEST_CASE("noise that neighbours do not share does not improve predictions") {
  const calibrate::Smoothing found =
      calibrate::choose_smoothness(lattice([](double, double, std::size_t i) { return noise(i); }));
  CHECK(found.loss > 0.9 * found.loss_before);
}

}  // namespace kvcast::tests
