#include "calibrate/attention.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>

#include "base/parallel.hpp"
#include "calibrate/attention_correction.hpp"
#include "calibrate/predict.hpp"
#include "calibrate/smooth.hpp"
#include "calibrate/solve.hpp"
#include "calibrate/stage.hpp"
#include "hardware/number.hpp"

namespace kvcast::calibrate {
namespace {

constexpr int kFolds = kSmoothFolds;
constexpr std::size_t kLeastAttentionPoints = 30;
// Two kernels have twice the parameters: they must reduce the loss on held-out folds by this share.
constexpr double kGainOfTwo = 0.2;

constexpr double kAboutAsWell = 1.1;  // share of the best structure's loss
constexpr std::size_t kMostContenders = 6;

std::vector<AttentionStructure> structures() {
  std::vector<AttentionStructure> all;
  for (const double tile : {16, 32, 64, 128}) {
    for (const double part : {64, 128, 256, 512}) {
      if (part < tile) continue;
      for (const double parts : {1, 2, 4, 8}) all.push_back({tile, part, parts});
    }
  }
  return all;
}

// The continuous parameters, in the order in which they are solved for: the row times come last, one for each measured
// number of query heads.
struct Knob {
  const char* key;
  Value config::AttentionKernel::*value;
  double low, high, start;
};
constexpr Knob kKnobs[] = {
    {"floor_attention", &config::AttentionKernel::floor, 0.1e-6, 40e-6, 8e-6},
    {"attention_merge", &config::AttentionKernel::merge, 0.01e-6, 20e-6, 2e-6},
    {"attention_tile_time", &config::AttentionKernel::tile_time, 0.001e-6, 10e-6, 0.3e-6},
    {"attention_efficiency", &config::AttentionKernel::efficiency, 0.5, 1, 0.9},
    {"l2_bandwidth", &config::AttentionKernel::l2_bandwidth, 1e12, 12e12, 4e12},
    {"attention_overlap", &config::AttentionKernel::overlap, 1, 8, 1.6},
    {"attention_padding", &config::AttentionKernel::padding, 0.01, 1, 0.3},
};
constexpr double kRowLow = 0.05e-6, kRowHigh = 20e-6, kRowStart = 3e-6;

std::vector<FitParameter> parameters(const config::Gpu& gpu) {
  std::vector<FitParameter> all;
  for (const Knob& knob : kKnobs) all.push_back({knob.key, knob.low, knob.high, knob.start});
  all[4].low = std::max(all[4].low, gpu.hbm_bandwidth.value);  // an L2 is never slower than the memory behind it
  all[4].start = std::max(all[4].start, 1.2 * all[4].low);
  for (std::size_t i = 0; i < gpu.attention.row.x.size(); ++i) {
    all.push_back({"attention_row", kRowLow, kRowHigh, kRowStart});
  }
  return all;
}

// The same with a prior on each, from which it starts.
std::vector<FitParameter> parameters(const config::Gpu& gpu, const config::Gpu& prior) {
  std::vector<FitParameter> all = parameters(gpu);
  all[3].high = std::max(gpu.stream_efficiency.value, 1.01 * all[3].low);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool row = i >= std::size(kKnobs);
    const hardware::Number number = row ? hardware::at(prior.attention.row, gpu.attention.row.x[i - std::size(kKnobs)])
                                        : hardware::number(prior.attention.*kKnobs[i].value);
    set_prior(all[i], number.value, number.uncertainty);
  }
  return all;
}

void set(config::AttentionKernel& kernel, std::span<const double> values) {
  std::size_t i = 0;
  for (const Knob& knob : kKnobs) (kernel.*knob.value).value = values[i++];
  for (double& y : kernel.row.y) y = values[i++];
}

void set(config::AttentionKernel& kernel, const AttentionStructure& s) {
  kernel.tile.value = s.tile, kernel.part.value = s.part, kernel.parts.value = s.parts;
}

// Solves for the points of all folds except one (-1: all), and leaves the result in gpu.
Solution solve_without(std::span<const MeasuredPoint> points, int left_out, const config::Gpu* prior,
                       config::Gpu& gpu) {
  std::vector<const MeasuredPoint*> used;
  std::vector<double> weights;
  for (const MeasuredPoint& point : points) {
    if (attention_fold(point) == left_out) continue;
    used.push_back(&point);
    weights.push_back(weight_of(point, gpu.l2_capacity));
  }
  const auto errors = [&](std::span<const double> values, std::span<double> out) {
    set(gpu.attention, values);
    for (std::size_t i = 0; i < used.size(); ++i) out[i] = log_error(gpu, *used[i]);
  };
  Solution solution = solve(prior ? parameters(gpu, *prior) : parameters(gpu), weights, errors);
  set(gpu.attention, solution.values);
  return solution;
}

UnseenErrors cross_validate(std::span<const MeasuredPoint> points, const AttentionStructure& structure,
                            const config::Gpu* prior, config::Gpu gpu) {
  set(gpu.attention, structure);
  UnseenErrors left_out;
  for (int fold = 0; fold < kFolds; ++fold) {
    solve_without(points, fold, prior, gpu);
    for (const MeasuredPoint& point : points) {
      if (attention_fold(point) != fold) continue;
      left_out.errors.push_back(log_error(gpu, point));
      left_out.weights.push_back(weight_of(point, gpu.l2_capacity));
    }
  }
  return left_out;
}

struct KernelFit {
  config::AttentionKernel kernel;
  UnseenErrors left_out;  // errors of the chosen structure
  std::vector<AttentionStructure> contenders;
  std::vector<std::string> at_bounds;
};

void start_rows(std::span<const MeasuredPoint> points, config::Gpu& gpu) {
  std::set<double> groups;
  for (const MeasuredPoint& point : points) groups.insert(attention_of(point).group);
  gpu.attention_mha.reset();
  gpu.attention_correction.reset();
  gpu.attention.row.x.assign(groups.begin(), groups.end());
  gpu.attention.row.y.assign(groups.size(), kRowStart);
}

// Fits one kernel to all points; gpu supplies the numbers that are not fitted.
KernelFit fit_kernel(std::span<const MeasuredPoint> points, const config::Gpu* prior, config::Gpu gpu) {
  start_rows(points, gpu);
  const std::vector<AttentionStructure> all = structures();
  std::vector<UnseenErrors> tried(all.size());
  parallel_for(all.size(), hardware_threads(),
               [&](std::size_t i) { tried[i] = cross_validate(points, all[i], prior, gpu); });
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return tried[a].loss() < tried[b].loss(); });
  const std::size_t best = order.front();
  set(gpu.attention, all[best]);
  Solution solution = solve_without(points, -1, prior, gpu);
  KernelFit fit{gpu.attention, tried[best], {}, std::move(solution.at_bounds)};
  for (const std::size_t i : order) {
    if (tried[i].loss() > kAboutAsWell * tried[best].loss() || fit.contenders.size() == kMostContenders) break;
    fit.contenders.push_back(all[i]);
  }
  return fit;
}

std::vector<MeasuredPoint> not_held_out(std::span<const MeasuredPoint> points) {
  std::vector<MeasuredPoint> used;
  std::copy_if(points.begin(), points.end(), std::back_inserter(used), [](auto& point) { return !point.held_out; });
  if (used.size() < kLeastAttentionPoints) {
    throw TooFewCases(
        fmt::format("attention: {} points to fit to, at least {} are needed", used.size(), kLeastAttentionPoints));
  }
  return used;
}

void set_range(std::span<const MeasuredPoint> points, config::Gpu& gpu) {
  const auto span_of = [&](auto&& number) {
    config::SizeRange span{std::numeric_limits<double>::infinity(), 0};
    for (const MeasuredPoint& point : points) {
      span.low = std::min(span.low, number(attention_of(point)));
      span.high = std::max(span.high, number(attention_of(point)));
    }
    return span;
  };
  gpu.range.attention_rows = span_of([](const graph::DecodeAttention& w) { return w.rows; });
  gpu.range.attention_tokens = span_of([](const graph::DecodeAttention& w) { return w.tokens / w.rows; });
  gpu.range.attention_head_dim = span_of([](const graph::DecodeAttention& w) { return w.head_dim; });
}

// Adds a correction for the residuals of the terms, if it reduces the loss in cross-validation.
AttentionFit corrected(std::span<const MeasuredPoint> points, AttentionFit fit, config::Gpu& gpu) {
  std::optional<FittedCorrection> more = fit_correction(points, gpu);
  if (!more) return fit;
  gpu.attention_correction = std::move(more->correction);
  fit.left_out_loss = more->loss, fit.left_out_spread = more->spread;
  return fit;
}

AttentionFit fit_together(std::span<const MeasuredPoint> used, const config::Gpu* prior, config::Gpu& gpu) {
  const KernelFit fit = fit_kernel(used, prior, gpu);
  gpu.attention = fit.kernel;
  gpu.attention_mha.reset();
  gpu.attention_correction.reset();
  set_range(used, gpu);
  return {static_cast<int>(structures().size()), fit.left_out.loss(), fit.left_out.spread(), fit.contenders,
          fit.at_bounds};
}

// Fits two kernels instead of one, if they reduce the loss enough.
AttentionFit fit_apart(std::span<const MeasuredPoint> used, const AttentionFit& together, config::Gpu& gpu) {
  std::vector<MeasuredPoint> shared(used.begin(), used.end());
  const auto own =
      std::partition(shared.begin(), shared.end(), [](auto& point) { return attention_of(point).group != 1; });
  const std::vector<MeasuredPoint> alone(own, shared.end());
  shared.erase(own, shared.end());
  if (std::min(shared.size(), alone.size()) < kLeastAttentionPoints) return together;
  const KernelFit gqa = fit_kernel(shared, nullptr, gpu), mha = fit_kernel(alone, nullptr, gpu);
  UnseenErrors apart = gqa.left_out;
  apart.errors.insert(apart.errors.end(), mha.left_out.errors.begin(), mha.left_out.errors.end());
  apart.weights.insert(apart.weights.end(), mha.left_out.weights.begin(), mha.left_out.weights.end());
  if (apart.loss() > (1 - kGainOfTwo) * together.left_out_loss) return together;
  gpu.attention = gqa.kernel;
  gpu.attention_mha = mha.kernel;
  return {together.candidates, apart.loss(), apart.spread(), {}, {}};
}

}  // namespace

AttentionFit fit_attention(std::span<const MeasuredPoint> points, const config::Gpu& prior, config::Gpu& gpu) {
  const std::vector<MeasuredPoint> used = not_held_out(points);
  return corrected(used, fit_together(used, &prior, gpu), gpu);
}

void refit_attention(std::span<const MeasuredPoint> points, const config::Gpu& prior,
                     const AttentionStructure& structure, config::Gpu& gpu) {
  const std::vector<MeasuredPoint> used = not_held_out(points);
  start_rows(used, gpu);
  set(gpu.attention, structure);
  solve_without(used, -1, &prior, gpu);
}

AttentionFit fit_attention_by_heads(std::span<const MeasuredPoint> points, config::Gpu& gpu) {
  const std::vector<MeasuredPoint> used = not_held_out(points);
  return corrected(used, fit_apart(used, fit_together(used, nullptr, gpu), gpu), gpu);
}

}  // namespace kvcast::calibrate
