#include "calibrate/solve.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>

#include "base/error.hpp"
#include "base/quantile.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kScale = 0.05;       // error in logarithms from which the loss grows linearly: a choice
constexpr double kPointError = 0.03;  // typical error of points and model: the unit in which priors count
constexpr int kMostEvaluations = 60;  // of the errors, in addition to those for derivatives
constexpr double kDerivativeStep = 1e-8;
constexpr double kAtBound = 1e-3;  // share of a parameter's range

// Pseudo-Huber loss: quadratic for small errors, linear for large ones.
double pseudo_huber(double e) { return 2 * kScale * kScale * (std::sqrt(1 + e * e / (kScale * kScale)) - 1); }

// Numerical derivatives step by a share of u: kept away from zero, where a step would vanish.
constexpr double kShift = 4;

double bounded(const FitParameter& p, double u) { return p.low + (p.high - p.low) * (1 + std::sin(u - kShift)) / 2; }

// Keeps away from the bound, where the derivative by u is zero and the solver could not leave.
double unbounded(const FitParameter& p, double value) {
  const double share = (value - p.low) / (p.high - p.low);
  return kShift + std::asin(2 * std::clamp(share, 0.01, 0.99) - 1);
}

struct Problem {
  using Scalar = double;
  using InputType = Eigen::VectorXd;
  using ValueType = Eigen::VectorXd;
  using JacobianType = Eigen::MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  std::span<const FitParameter> parameters;
  std::span<const double> weights;
  const Errors& errors;

  int inputs() const { return static_cast<int>(parameters.size()); }
  int values() const { return static_cast<int>(weights.size() + parameters.size()); }

  std::vector<double> from(const Eigen::VectorXd& u) const {
    std::vector<double> v(parameters.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = bounded(parameters[i], u[static_cast<Eigen::Index>(i)]);
    return v;
  }

  // Residuals whose squares are the loss.
  int operator()(const Eigen::VectorXd& u, Eigen::VectorXd& residuals) const {
    const std::vector<double> v = from(u);
    std::vector<double> e(weights.size());
    errors(v, e);
    for (std::size_t i = 0; i < e.size(); ++i) {
      residuals[static_cast<Eigen::Index>(i)] = std::copysign(std::sqrt(weights[i] * pseudo_huber(e[i])), e[i]);
    }
    for (std::size_t i = 0; i < v.size(); ++i) {
      const FitParameter& p = parameters[i];
      residuals[static_cast<Eigen::Index>(e.size() + i)] = p.width > 0 ? kPointError * (v[i] - p.centre) / p.width : 0;
    }
    return 0;
  }
};

}  // namespace

void set_prior(FitParameter& p, double value, double uncertainty) {
  p.centre = value, p.width = value * std::max(uncertainty, kLeastDoubt);
  p.start = std::clamp(value, p.low, p.high);
}

double loss(std::span<const double> errors, std::span<const double> weights) {
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) sum += weights[i] * pseudo_huber(errors[i]), weight += weights[i];
  return weight > 0 ? sum / weight : 0;
}

double UnseenErrors::loss() const {
  return errors.empty() ? std::numeric_limits<double>::infinity() : calibrate::loss(errors, weights);
}

double UnseenErrors::spread() const {
  if (errors.empty()) return 0;
  std::vector<double> sizes;
  for (const double error : errors) sizes.push_back(std::abs(std::expm1(error)));
  return quantile(sizes, 0.8);
}

Solution solve(std::span<const FitParameter> parameters, std::span<const double> weights, const Errors& errors) {
  KVCAST_CHECK(weights.size() >= parameters.size() && !parameters.empty());
  const Problem problem{parameters, weights, errors};
  Eigen::VectorXd u(problem.inputs());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    u[static_cast<Eigen::Index>(i)] = unbounded(parameters[i], parameters[i].start);
  }
  Eigen::NumericalDiff<Problem> with_derivatives(problem, kDerivativeStep);
  Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Problem>> solver(with_derivatives);
  solver.parameters.maxfev = kMostEvaluations * (problem.inputs() + 1);
  solver.minimize(u);
  Solution solution{problem.from(u), 0, {}};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const FitParameter& p = parameters[i];
    const double share = (solution.values[i] - p.low) / (p.high - p.low);
    if (share < kAtBound || share > 1 - kAtBound) solution.at_bounds.push_back(p.key);
  }
  std::vector<double> e(weights.size());
  errors(solution.values, e);
  solution.cost = loss(e, weights);
  return solution;
}

}  // namespace kvcast::calibrate
