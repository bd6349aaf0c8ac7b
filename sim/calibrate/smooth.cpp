#include "calibrate/smooth.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "calibrate/solve.hpp"

namespace kvcast::calibrate {
namespace {

double covariance(const Coordinates& a, const Coordinates& b, const Coordinates& lengths) {
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) square += std::pow((a[i] - b[i]) / lengths[i], 2);
  const double distance = std::sqrt(3 * square);
  return (1 + distance) * std::exp(-distance);
}

std::vector<Smoothness> grid() {
  std::vector<Smoothness> all;
  for (const double first : {0.5, 1.0, 2.0}) {
    for (const double second : {0.5, 1.0, 2.0}) {
      for (const double third : {0.5, 2.0, 8.0}) {
        for (const double noise : {0.02, 0.1, 0.5}) all.push_back({{first, second, third}, noise});
      }
    }
  }
  return all;
}

// Residual of each sample from a surface through the folds other than its own.
UnseenErrors leave_out(std::span<const SmoothSample> samples, const Smoothness& smoothness) {
  UnseenErrors left;
  for (int fold = 0; fold < kSmoothFolds; ++fold) {
    std::vector<SmoothSample> others;
    for (const SmoothSample& sample : samples) {
      if (sample.fold != fold) others.push_back(sample);
    }
    if (others.empty()) continue;
    const Surface surface(others, smoothness);
    for (const SmoothSample& sample : samples) {
      if (sample.fold != fold) continue;
      left.errors.push_back(surface.at(sample.at) - sample.value);
      left.weights.push_back(sample.weight);
    }
  }
  return left;
}

}  // namespace

struct Surface::Body {
  std::vector<Coordinates> at;
  Coordinates lengths;
  Eigen::VectorXd weights;
};

Surface::Surface(std::span<const SmoothSample> samples, const Smoothness& smoothness)
    : body_(std::make_unique<Body>()) {
  KVCAST_CHECK(!samples.empty());
  const auto n = static_cast<Eigen::Index>(samples.size());
  body_->lengths = smoothness.lengths;
  Eigen::MatrixXd joint(n, n);
  Eigen::VectorXd values(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const SmoothSample& sample = samples[i];
    body_->at.push_back(sample.at);
    values[i] = sample.value;
    for (Eigen::Index j = 0; j <= i; ++j) {
      joint(i, j) = covariance(sample.at, body_->at[j], smoothness.lengths);
    }
    joint(i, i) += smoothness.noise;
  }
  body_->weights = joint.selfadjointView<Eigen::Lower>().llt().solve(values);
}

Surface::~Surface() = default;

double Surface::at(const Coordinates& where) const {
  double sum = 0;
  for (std::size_t i = 0; i < body_->at.size(); ++i) {
    sum += body_->weights[static_cast<Eigen::Index>(i)] * covariance(where, body_->at[i], body_->lengths);
  }
  return sum;
}

Smoothing choose_smoothness(std::span<const SmoothSample> samples) {
  KVCAST_CHECK(!samples.empty());
  std::vector<double> values, weights;
  for (const SmoothSample& sample : samples) values.push_back(sample.value), weights.push_back(sample.weight);
  const double loss_before = loss(values, weights);
  const std::vector<Smoothness> all = grid();
  std::vector<Smoothing> tried(all.size());
  parallel_for(all.size(), hardware_threads(), [&](std::size_t i) {
    const UnseenErrors left = leave_out(samples, all[i]);
    tried[i] = {all[i], loss_before, left.loss(), left.spread()};
  });
  return *std::ranges::min_element(tried, [](auto& a, auto& b) { return a.loss < b.loss; });
}

}  // namespace kvcast::calibrate
