#include "calibrate/solve.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace kvcast::tests {

using calibrate::FitParameter;

namespace {

// Errors of a + b x against y.
calibrate::Errors line(const std::vector<double>& x, const std::vector<double>& y) {
  return [&](std::span<const double> v, std::span<double> errors) {
    for (std::size_t i = 0; i < x.size(); ++i) errors[i] = v[0] + v[1] * x[i] - y[i];
  };
}

const std::vector<FitParameter> kLine = {{"a", 0, 10, 5}, {"b", 0, 10, 5}};

}  // namespace

TEST_CASE("a line is recovered from its points") {
  const std::vector<double> x = {0, 1, 2, 3}, y = {2, 2.5, 3, 3.5}, weights(4, 1);
  const calibrate::Solution s = calibrate::solve(kLine, weights, line(x, y));
  CHECK(s.values[0] == Approx(2).epsilon(1e-4));
  CHECK(s.values[1] == Approx(0.5).epsilon(1e-4));
  CHECK(s.cost < 1e-8);
}

TEST_CASE("a single outlier does not determine the result") {
  // Least squares would move the line through (0,2) ... (9,6.5) by 10 / 10 at least; absolute errors leave it alone.
  std::vector<double> x, y;
  for (int i = 0; i < 10; ++i) x.push_back(i), y.push_back(2 + 0.5 * i);
  y[4] += 10;
  const std::vector<double> weights(10, 1);
  const calibrate::Solution s = calibrate::solve(kLine, weights, line(x, y));
  CHECK(s.values[0] == Approx(2).margin(0.05));
  CHECK(s.values[1] == Approx(0.5).margin(0.01));
}

TEST_CASE("weights settle disagreements between points") {
  const std::vector<double> x = {0, 0}, y = {2, 2.02};
  const std::vector<FitParameter> constant = {{"a", 0, 10, 5}};
  const calibrate::Errors errors = [&](std::span<const double> v, std::span<double> out) {
    for (std::size_t i = 0; i < 2; ++i) out[i] = v[0] - y[i];
  };
  // Nearly squares below the scale of 0.05: the weighted mean, (2 · 3 + 2.02) / 4.
  CHECK(calibrate::solve(constant, std::vector<double>{3, 1}, errors).values[0] == Approx(2.005).margin(2e-4));
  CHECK(calibrate::solve(constant, std::vector<double>{1, 1}, errors).values[0] == Approx(2.01).margin(2e-4));
}

TEST_CASE("a start in the middle of the bounds works like any other") {
  const std::vector<double> y = {2}, weights = {1};
  const std::vector<FitParameter> constant = {{"a", -1, 3, 1}};
  CHECK(calibrate::solve(constant, weights, [&](std::span<const double> v, std::span<double> out) {
          out[0] = v[0] - y[0];
        }).values[0] == Approx(2).epsilon(1e-4));
}

TEST_CASE("bounds are respected, and the best value may be a bound") {
  const std::vector<double> x = {0, 1, 2, 3}, y = {2, 2.5, 3, 3.5}, weights(4, 1);
  const std::vector<FitParameter> bounded = {{"a", 0, 10, 5}, {"b", 0, 0.25, 0.1}};
  const calibrate::Solution s = calibrate::solve(bounded, weights, line(x, y));
  CHECK(s.values[1] <= 0.25);
  CHECK(s.values[1] == Approx(0.25).margin(1e-3));
}

TEST_CASE("the loss is quadratic for small errors and linear for large ones") {
  const std::vector<double> one = {1};
  CHECK(calibrate::loss(std::vector<double>{0.001}, one) == Approx(1e-6).epsilon(1e-3));
  // 2 · 0.05² · (√(1 + 400) − 1) with an error of 1.
  CHECK(calibrate::loss(std::vector<double>{1}, one) == Approx(0.005 * (std::sqrt(401.0) - 1)));
  CHECK(calibrate::loss(std::vector<double>{0.0, 1.0}, std::vector<double>{3, 1}) ==
        Approx(0.005 * (std::sqrt(401.0) - 1) / 4));
}

}  // namespace kvcast::tests
