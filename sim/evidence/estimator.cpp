#include "evidence/estimator.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "evidence/covariance.hpp"

namespace kvcast::evidence {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

constexpr double kHeadroom = 1.1;  // scores above the full one are distinguished up to this share of it
constexpr double kDegrees = 4;     // degrees of freedom of the noise
constexpr int kReweightings = 4;
// Number of rows that a single estimate uses: the most similar ones. All rows would move single estimates by a few
// tenths of a point, and in rare cases by several points, but errors on rows left out stay the same within 0.2 points.
constexpr std::size_t kMostAlike = 192;

bool all(std::size_t) { return true; }

std::vector<SettingPoint> points_of(std::span<const ScoreRecord* const> records, Covariance& kernel) {
  std::vector<SettingPoint> points, pooled;
  for (const ScoreRecord* r : records) points.push_back(kernel.point(*r));
  pooled = points;
  for (std::size_t i = 0; i < points.size(); ++i)
    pooled[i].angle = pooled_angle(*records[i], points[i], records, points, all);
  return pooled;
}

double residual_of(const ScoreRecord& r, const SettingPoint& p) { return to_angle(r.published, r.full) - p.angle; }

constexpr Eigen::Index kBlock = 128;  // columns that are processed together

// Inverse of a lower triangular factor, itself lower triangular, at half the cost of solving for the identity.
Matrix inverse_of(const Matrix& lower) {
  const Eigen::Index n = lower.rows();
  Matrix inverse = Matrix::Zero(n, n);
  for (Eigen::Index j = 0; j < n; j += kBlock) {
    const Eigen::Index width = std::min(kBlock, n - j), below = n - j;
    inverse.block(j, j, below, width).setIdentity();
    Matrix columns = inverse.block(j, j, below, width);
    lower.bottomRightCorner(below, below).triangularView<Eigen::Lower>().solveInPlace(columns);
    inverse.block(j, j, below, width) = columns;
  }
  return inverse;
}

// XᵀX for a lower triangular X.
Matrix squared(const Matrix& lower) {
  const Eigen::Index n = lower.rows();
  Matrix product(n, n);
  for (Eigen::Index i = 0; i < n; i += kBlock) {
    const Eigen::Index rows = std::min(kBlock, n - i);
    const auto left = lower.block(i, i, n - i, rows).transpose();
    product.block(i, 0, rows, i + rows).noalias() = left * lower.block(i, 0, n - i, i + rows);
    if (i > 0) product.block(0, i, i, rows) = product.block(i, 0, rows, i).transpose();
  }
  return product;
}

// Inverse of a positive definite matrix, of which only the lower half is read.
Matrix inverse_of_covariance(const Matrix& covariance) {
  const Eigen::LLT<Matrix> factor(covariance);
  KVCAST_CHECK(factor.info() == Eigen::Success);
  return squared(inverse_of(factor.matrixL()));
}

}  // namespace

Family family_of(const std::string& benchmark) {
  return benchmark.starts_with("ruler")       ? Family::kRuler
         : benchmark.starts_with("longbench") ? Family::kLongBench
                                              : Family::kOther;
}

std::string_view family_name(Family family) {
  constexpr std::array<std::string_view, kFamilies> kNames{"ruler", "longbench", "other"};
  return kNames[static_cast<std::size_t>(family)];
}

double to_angle(double points, double full) {
  const double share = full > 0 ? std::clamp(points / full / kHeadroom, 0.0, 1.0) : 0;
  return std::asin(std::sqrt(share));
}

double to_points(double angle, double full) {
  const double s = std::sin(std::clamp(angle, 0.0, std::numbers::pi / 2));
  return std::min(100.0, full * kHeadroom * s * s);
}

// Fit of one benchmark. Benchmarks share no level, so each is a Gaussian process of its own.
struct JointFit::Fit {
  Fit(std::vector<ScoreRecord> of_benchmark, const Components& components, JointFit::Noise from)
      : records(std::move(of_benchmark)), kernel(components, records.front().benchmark) {
    const auto n = static_cast<Eigen::Index>(records.size());
    for (const ScoreRecord& r : records) pointers.push_back(&r);
    points = points_of(pointers, kernel);
    Matrix prior(n, n);
    for (Eigen::Index i = 0; i < n; ++i) {
      for (Eigen::Index j = 0; j <= i; ++j) prior(i, j) = prior(j, i) = kernel(points[i], points[j]);
    }
    Vector residuals(n), base(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      const ScoreRecord& r = records[i];
      residuals[i] = residual_of(r, points[i]), base[i] = kernel.noise(r);
    }
    noise = base;
    if (from == JointFit::Noise::kOfRecords) {
      for (Eigen::Index i = 0; i < n; ++i) noise[i] = records[i].noise;
    }
    const auto total = [&] {
      Matrix t = prior;
      t.diagonal() += noise;
      return t;
    };
    for (int pass = 0; from == JointFit::Noise::kFitted && pass < kReweightings; ++pass) {
      const Eigen::LLT<Matrix> factor(total());
      KVCAST_CHECK(factor.info() == Eigen::Success);
      weights = factor.solve(residuals);
      const Matrix lower = inverse_of(factor.matrixL());
      // Posterior mean and variance of the noise of each y.
      for (Eigen::Index i = 0; i < n; ++i) {
        const double residual = noise[i] * weights[i];
        const double variance = noise[i] - noise[i] * noise[i] * lower.col(i).squaredNorm();
        noise[i] = base[i] * (kDegrees + (residual * residual + variance) / base[i]) / (kDegrees + 1);
      }
    }
    inverse = inverse_of_covariance(total());
    weights = inverse * residuals;
  }

  std::vector<ScoreRecord> records;
  std::vector<const ScoreRecord*> pointers;
  Covariance kernel;
  std::vector<SettingPoint> points;
  Vector noise, weights;  // weights: the inverse times the residuals
  Matrix inverse;
};

JointFit::JointFit(std::vector<ScoreRecord> records, const Components& components, Noise noise)
    : records_(std::move(records)) {
  std::map<std::string, std::vector<ScoreRecord>> benchmarks;
  for (const ScoreRecord& r : records_) {
    std::vector<ScoreRecord>& of_benchmark = benchmarks[r.benchmark];
    places_.push_back(of_benchmark.size());
    of_benchmark.push_back(r);
  }
  for (auto& [name, of_benchmark] : benchmarks)
    fits_.emplace(name, std::make_unique<Fit>(std::move(of_benchmark), components, noise));
  for (std::size_t i = 0; i < records_.size(); ++i)
    records_[i].noise = fits_.at(records_[i].benchmark)->noise[static_cast<Eigen::Index>(places_[i])];
}
JointFit::~JointFit() = default;

struct Estimator::Benchmark {
  Covariance kernel;
  std::vector<const ScoreRecord*> records;
  std::vector<SettingPoint> points;
};

Estimator::Estimator(std::vector<ScoreRecord> records, const Components& components)
    : records_(std::move(records)), components_(components) {
  for (const ScoreRecord& r : records_) {
    std::unique_ptr<Benchmark>& benchmark = benchmarks_[r.benchmark];
    if (!benchmark) benchmark.reset(new Benchmark{Covariance(components_, r.benchmark), {}, {}});
    benchmark->records.push_back(&r);
  }
  for (auto& [name, benchmark] : benchmarks_) benchmark->points = points_of(benchmark->records, benchmark->kernel);
}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const ScoredTask& setting, const IsLeftOut& is_left_out) const {
  const auto found = benchmarks_.find(setting.benchmark);
  // Groups without records are numbered in a copy of the kernel.
  Covariance kernel = found == benchmarks_.end() ? Covariance(components_, setting.benchmark) : found->second->kernel;
  SettingPoint at = kernel.point(setting);
  if (found != benchmarks_.end()) {
    const Benchmark& b = *found->second;
    at.angle = pooled_angle(setting, at, b.records, b.points,
                            [&](std::size_t i) { return !is_left_out || !is_left_out(*b.records[i]); });
  }
  double mean = at.angle, variance = kernel(at, at) + kernel.noise(setting);
  if (found != benchmarks_.end()) {
    const Benchmark& benchmark = *found->second;
    std::vector<double> similarities(benchmark.points.size());
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < similarities.size(); ++i) {
      if (is_left_out && is_left_out(*benchmark.records[i])) continue;
      similarities[i] = kernel(at, benchmark.points[i]);
      order.push_back(i);
    }
    const std::size_t most = std::min(kMostAlike, order.size());
    std::partial_sort(order.begin(), order.begin() + most, order.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(similarities[b], a) < std::tie(similarities[a], b);
    });
    const auto n = static_cast<Eigen::Index>(most);
    Matrix total(n, n);
    Vector k(n), residuals(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      const std::size_t neighbour = order[i];
      const ScoreRecord& r = *benchmark.records[neighbour];
      k[i] = similarities[neighbour];
      residuals[i] = residual_of(r, benchmark.points[neighbour]);
      for (Eigen::Index j = 0; j < i; ++j)
        total(i, j) = kernel(benchmark.points[neighbour], benchmark.points[order[j]]);
      total(i, i) =
          kernel(benchmark.points[neighbour], benchmark.points[neighbour]) + (r.noise > 0 ? r.noise : kernel.noise(r));
    }
    const Eigen::LLT<Matrix> factor(total);  // reads the lower half
    const Vector weights = factor.solve(k);
    mean += weights.dot(residuals), variance -= weights.dot(k);
  }
  return {to_points(mean, setting.full), std::sqrt(std::max(variance, 1e-9))};
}

// Let B be the rows left out and A the inverse. The others predict y_B with mean y_B − A_BB⁻¹ (A r)_B and covariance
// A_BB⁻¹.
std::vector<Estimate> JointFit::leave_out(std::span<const std::size_t> rows) const {
  std::map<std::string, std::vector<std::size_t>> benchmarks;  // → indices of `rows`
  for (std::size_t i = 0; i < rows.size(); ++i) benchmarks[records_[rows[i]].benchmark].push_back(i);
  std::vector<Estimate> estimates(rows.size());
  for (const auto& [name, indices] : benchmarks) {
    const Fit& fit = *fits_.at(name);
    const auto n = static_cast<Eigen::Index>(indices.size());
    const auto at = [&](Eigen::Index i) { return static_cast<Eigen::Index>(places_[rows[indices[i]]]); };
    Matrix block(n, n);
    Vector weights(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      weights[i] = fit.weights[at(i)];
      for (Eigen::Index j = 0; j < n; ++j) block(i, j) = fit.inverse(at(i), at(j));
    }
    const Matrix covariance = inverse_of_covariance(block);
    const Vector deviations = covariance * weights;
    std::vector<bool> gone(fit.records.size());
    for (Eigen::Index i = 0; i < n; ++i) gone[at(i)] = true;
    for (Eigen::Index i = 0; i < n; ++i) {
      const auto row = at(i);
      const ScoreRecord& r = fit.records[row];
      const SettingPoint& p = fit.points[row];
      const double own = pooled_angle(r, p, fit.pointers, fit.points, [&](std::size_t j) { return !gone[j]; });
      // A row left out has the noise of a new row, not the fitted one.
      const double variance = covariance(i, i) - fit.noise[at(i)] + fit.kernel.noise(r);
      estimates[indices[i]] = {to_points(to_angle(r.published, r.full) - deviations[i] + own - p.angle, r.full),
                               std::sqrt(std::max(variance, 1e-9))};
    }
  }
  return estimates;
}

void for_each_component(Components& c, const std::function<void(const std::string&, double&)>& visit) {
  for (std::size_t l = 0; l < kLevels; ++l) visit(std::string(level_name(static_cast<Level>(l))), c.variance[l]);
  for (std::size_t f = 0; f < kFamilies; ++f) {
    const std::string name(family_name(static_cast<Family>(f)));
    visit("scale_" + name, c.scale[f]), visit("noise_" + name, c.noise[f]);
  }
}

Components read_components(config::Section section) {
  Components components;
  for_each_component(components,
                     [&](const std::string& name, double& value) { value = section.number(name, 0, 1000); });
  section.finish();
  return components;
}

std::string write_components(Components components) {
  std::string text;
  for_each_component(
      components, [&](const std::string& name, double& value) { text += fmt::format("  {}: {:.3g}\n", name, value); });
  return text;
}

}  // namespace kvcast::evidence
