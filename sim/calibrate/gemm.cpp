#include "calibrate/gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "calibrate/predict.hpp"
#include "calibrate/solve.hpp"
#include "calibrate/stage.hpp"
#include "hardware/number.hpp"

namespace kvcast::calibrate {
namespace {

constexpr std::size_t kLeastGemmPoints = 25;

// Output tiles per SM between which the compute efficiency is linear in the logarithm; it is written out as a curve
// with a point per octave. Fewer tiles leave SMs idle in proportion.
constexpr std::array<double, 5> kTiles = {0.25, 1, 4, 32, 256};
constexpr double kFewestTiles = 0.01;
constexpr double kMargin = 1.02;  // for the rounding of written numbers

const graph::Gemm& product_of(const MeasuredPoint& point) { return std::get<graph::Gemm>(point.op.work); }

// Interpolates y over log x, the nodes ascending.
double interpolate(std::span<const double> nodes, std::span<const double> y, double x) {
  const auto above = std::ranges::upper_bound(nodes, x);
  if (above == nodes.begin()) return y.front();
  if (above == nodes.end()) return y.back();
  const auto i = static_cast<std::size_t>(above - nodes.begin());
  return y[i - 1] + (y[i] - y[i - 1]) * std::log(x / nodes[i - 1]) / std::log(nodes[i] / nodes[i - 1]);
}

// Samples points an octave apart from `low` to `high`, `high` included.
void sample(config::Curve& curve, std::span<const double> nodes, std::span<const double> y, double low, double high) {
  for (double x = low; x < high * (1 - 1e-9); x *= 2) {
    curve.x.push_back(x);
    curve.y.push_back(interpolate(nodes, y, x));
  }
  curve.x.push_back(high);
  curve.y.push_back(interpolate(nodes, y, high));
}

// Meaning of the vector of values: floor, overlap, row loss, then the efficiencies at the nodes of both curves.
struct Form {
  std::vector<double> sizes;  // bytes of weights, ascending
  bool flat = false;          // one memory efficiency for all sizes
  const config::Gpu* prior = nullptr;

  std::size_t memory_values() const { return flat ? 1 : sizes.size(); }

  std::vector<FitParameter> parameters() const {
    std::vector<FitParameter> all = {
        {"floor_gemm", 0.05e-6, 20e-6, 3e-6}, {"gemm_overlap", 1, 12, 4}, {"gemm_row_loss", 0.002, 0.4, 0.05}};
    for (std::size_t i = 0; i < memory_values(); ++i) all.push_back({"gemm_memory_efficiency", 0.1, 1, 0.8});
    for (const double tiles : kTiles) all.push_back({"gemm_compute_efficiency", 0.02, 1, tiles < 1 ? 0.4 : 0.8});
    if (prior == nullptr) return all;
    const auto hold = [&](std::size_t i, const hardware::Number& n) { set_prior(all[i], n.value, n.uncertainty); };
    hold(0, hardware::number(prior->floor_gemm)), hold(1, hardware::number(prior->gemm_overlap));
    hold(2, hardware::number(prior->gemm_row_loss));
    for (std::size_t i = 0; i < memory_values(); ++i)
      hold(3 + i, hardware::at(prior->gemm_memory_efficiency, sizes[i]));
    for (std::size_t i = 0; i < kTiles.size(); ++i) {
      hold(3 + memory_values() + i, hardware::at(prior->gemm_compute_efficiency, kTiles[i]));
    }
    return all;
  }

  void set(config::Gpu& gpu, std::span<const double> values) const {
    gpu.floor_gemm.value = values[0], gpu.gemm_overlap.value = values[1], gpu.gemm_row_loss.value = values[2];
    const auto memory = values.subspan(3, memory_values()), compute = values.subspan(3 + memory_values());
    config::Curve& by_size = gpu.gemm_memory_efficiency;
    by_size.x.clear(), by_size.y.clear();
    if (flat) {
      by_size.x = sizes, by_size.y.assign(sizes.size(), memory.front());
    } else {
      sample(by_size, sizes, memory, sizes.front(), sizes.back());
    }
    config::Curve& by_tiles = gpu.gemm_compute_efficiency;
    by_tiles.x = {kFewestTiles}, by_tiles.y = {0};
    sample(by_tiles, kTiles, compute, kTiles.front(), kTiles.back());
    // More tiles never take less time: the efficiency grows no faster than the number of tiles.
    for (std::size_t i = by_tiles.x.size() - 1; i > 0; --i) {
      by_tiles.y[i - 1] = std::max(by_tiles.y[i - 1], kMargin * by_tiles.y[i] * by_tiles.x[i - 1] / by_tiles.x[i]);
    }
  }
};

// Candidate forms: one efficiency for all sizes, or three over the measured sizes.
std::vector<Form> forms(std::span<const MeasuredPoint> points, const config::Gpu* prior) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const MeasuredPoint& point : points) {
    low = std::min(low, repeated_bytes(point)), high = std::max(high, repeated_bytes(point));
  }
  if (low == high) throw TooFewCases("GEMM: all points have weights of one size");
  std::vector<Form> all = {{{low, high}, true, prior}};
  if (high > 4 * low) all.push_back({{low, std::sqrt(low * high), high}, false, prior});
  return all;
}

Solution solve_for(const Form& form, std::span<const MeasuredPoint* const> points, config::Gpu& gpu) {
  std::vector<double> weights;
  for (const MeasuredPoint* point : points) weights.push_back(weight_of(*point, gpu.l2_capacity));
  const auto errors = [&](std::span<const double> values, std::span<double> out) {
    form.set(gpu, values);
    for (std::size_t i = 0; i < points.size(); ++i) out[i] = log_error(gpu, *points[i]);
  };
  Solution solution = solve(form.parameters(), weights, errors);
  form.set(gpu, solution.values);
  return solution;
}

// Leaves out one matrix after another, except the smallest and the largest ones where there are others: without these
// no curve over sizes could know its end.
UnseenErrors cross_validate(const Form& form, std::span<const MeasuredPoint> points, config::Gpu gpu) {
  std::set<std::pair<double, double>> matrices, between;
  for (const MeasuredPoint& point : points) {
    const auto& work = product_of(point);
    matrices.emplace(work.n, work.k);
    const double bytes = repeated_bytes(point);
    if (bytes > form.sizes.front() && bytes < form.sizes.back()) between.emplace(work.n, work.k);
  }
  if (!between.empty()) matrices = between;
  UnseenErrors left_out;
  for (const auto& matrix : matrices) {
    std::vector<const MeasuredPoint*> seen, unseen;
    for (const MeasuredPoint& point : points) {
      const bool same = product_of(point).n == matrix.first && product_of(point).k == matrix.second;
      (same ? unseen : seen).push_back(&point);
    }
    if (seen.size() < form.parameters().size()) continue;
    solve_for(form, seen, gpu);
    for (const MeasuredPoint* point : unseen) {
      left_out.errors.push_back(log_error(gpu, *point));
      left_out.weights.push_back(weight_of(*point, gpu.l2_capacity));
    }
  }
  return left_out;
}

}  // namespace

GemmFit fit_gemm(std::span<const MeasuredPoint> points, const config::Gpu* prior, config::Gpu& gpu) {
  std::vector<MeasuredPoint> used;
  for (const MeasuredPoint& point : points) {
    if (!point.held_out) used.push_back(point);
  }
  if (used.size() < kLeastGemmPoints) {
    throw TooFewCases(fmt::format("GEMM: {} points to fit to, at least {} are needed", used.size(), kLeastGemmPoints));
  }
  const std::vector<Form> all = forms(used, prior);
  std::size_t best = 0;
  std::vector<UnseenErrors> tried;
  for (const Form& form : all) tried.push_back(cross_validate(form, used, gpu));
  for (std::size_t i = 1; i < all.size(); ++i) best = tried[i].loss() < tried[best].loss() ? i : best;
  std::vector<const MeasuredPoint*> seen;
  for (const MeasuredPoint& point : used) seen.push_back(&point);
  Solution solution = solve_for(all[best], seen, gpu);
  return {static_cast<int>(gpu.gemm_memory_efficiency.x.size()), tried[best].loss(), tried[best].spread(),
          std::move(solution.at_bounds)};
}

}  // namespace kvcast::calibrate
