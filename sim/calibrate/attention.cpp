#include "calibrate/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "base/parallel.hpp"
#include "calibrate/predict.hpp"
#include "calibrate/solve.hpp"

namespace kvcast::calibrate {
namespace {

constexpr int kFolds = 4;
constexpr std::size_t kLeastPoints = 30;
constexpr double kBeyondCache = 2, kWeightBeyondCache = 3;

// What the scheduler of the kernel does; not to be found by derivatives.
struct Structure {
  double tile, part, parts;
};

std::vector<Structure> structures() {
  std::vector<Structure> all;
  for (const double tile : {16, 32, 64, 128}) {
    for (const double part : {64, 128, 256, 512}) {
      if (part < tile) continue;
      for (const double parts : {1, 2, 4, 8}) all.push_back({tile, part, parts});
    }
  }
  return all;
}

const graph::DecodeAttention& work_of(const MeasuredPoint& point) {
  return std::get<graph::DecodeAttention>(point.op.work);
}

// The folds run along the diagonals of the (batch, context) table: a pair is left out whole.
int fold_of(const MeasuredPoint& point) {
  const graph::DecodeAttention& work = work_of(point);
  const double context = work.tokens / work.rows;
  return static_cast<int>(std::lround(std::log2(work.rows) + 3 * std::log2(context))) % kFolds;
}

double weight_of(const MeasuredPoint& point, const config::Gpu& gpu) {
  return repeated_bytes(point) > kBeyondCache * gpu.l2_capacity ? kWeightBeyondCache : 1;
}

// The continuous parameters, in the order in which they are solved for: the row times come last, one for each number of
// query heads that was measured.
struct Knob {
  const char* key;
  Value config::Gpu::*value;
  double low, high, start;
};
constexpr Knob kKnobs[] = {
    {"floor_attention", &config::Gpu::floor_attention, 0.1e-6, 40e-6, 8e-6},
    {"attention_merge", &config::Gpu::attention_merge, 0.01e-6, 20e-6, 2e-6},
    {"attention_tile_time", &config::Gpu::attention_tile_time, 0.001e-6, 10e-6, 0.3e-6},
    {"attention_efficiency", &config::Gpu::attention_efficiency, 0.5, 1, 0.9},
    {"l2_bandwidth", &config::Gpu::l2_bandwidth, 1e12, 12e12, 4e12},
    {"attention_overlap", &config::Gpu::attention_overlap, 1, 8, 1.6},
    {"attention_padding", &config::Gpu::attention_padding, 0.01, 1, 0.3},
};
constexpr double kRowLow = 0.05e-6, kRowHigh = 20e-6, kRowStart = 3e-6;

std::vector<Parameter> parameters(const config::Gpu& gpu) {
  std::vector<Parameter> all;
  for (const Knob& knob : kKnobs) all.push_back({knob.key, knob.low, knob.high, knob.start});
  all[4].low = std::max(all[4].low, gpu.hbm_bandwidth.value);  // an L2 is no slower than the memory behind it
  all[4].start = std::max(all[4].start, 1.2 * all[4].low);
  for (std::size_t i = 0; i < gpu.attention_row.x.size(); ++i) {
    all.push_back({"attention_row", kRowLow, kRowHigh, kRowStart});
  }
  return all;
}

void set(config::Gpu& gpu, std::span<const double> values) {
  std::size_t i = 0;
  for (const Knob& knob : kKnobs) (gpu.*knob.value).value = values[i++];
  for (double& y : gpu.attention_row.y) y = values[i++];
}

void set(config::Gpu& gpu, const Structure& s) {
  gpu.attention_tile.value = s.tile, gpu.attention_part.value = s.part, gpu.attention_parts.value = s.parts;
}

// Solves for the points of all folds but one (-1: all), and leaves the result in gpu.
double solve_without(std::span<const MeasuredPoint> points, int left_out, config::Gpu& gpu) {
  std::vector<const MeasuredPoint*> used;
  std::vector<double> weights;
  for (const MeasuredPoint& point : points) {
    if (fold_of(point) == left_out) continue;
    used.push_back(&point);
    weights.push_back(weight_of(point, gpu));
  }
  const auto errors = [&](std::span<const double> values, std::span<double> out) {
    set(gpu, values);
    for (std::size_t i = 0; i < used.size(); ++i) out[i] = log_error(gpu, *used[i]);
  };
  const Solution solution = solve(parameters(gpu), weights, errors);
  set(gpu, solution.values);
  return solution.cost;
}

double cross_validate(std::span<const MeasuredPoint> points, const Structure& structure, config::Gpu gpu) {
  set(gpu, structure);
  std::vector<double> errors, weights;
  for (int fold = 0; fold < kFolds; ++fold) {
    solve_without(points, fold, gpu);
    for (const MeasuredPoint& point : points) {
      if (fold_of(point) != fold) continue;
      errors.push_back(log_error(gpu, point));
      weights.push_back(weight_of(point, gpu));
    }
  }
  return loss(errors, weights);
}

void set_range(std::span<const MeasuredPoint> points, config::Gpu& gpu) {
  const auto span_of = [&](auto&& number) {
    config::Span span{std::numeric_limits<double>::infinity(), 0};
    for (const MeasuredPoint& point : points) {
      span.low = std::min(span.low, number(work_of(point)));
      span.high = std::max(span.high, number(work_of(point)));
    }
    return span;
  };
  gpu.range.attention_rows = span_of([](const graph::DecodeAttention& w) { return w.rows; });
  gpu.range.attention_tokens = span_of([](const graph::DecodeAttention& w) { return w.tokens / w.rows; });
  gpu.range.attention_head_dim = span_of([](const graph::DecodeAttention& w) { return w.head_dim; });
}

}  // namespace

AttentionFit fit_attention(std::span<const MeasuredPoint> points, config::Gpu& gpu) {
  std::vector<MeasuredPoint> used;
  std::set<double> groups;
  for (const MeasuredPoint& point : points) {
    if (point.held_out) continue;
    used.push_back(point);
    groups.insert(work_of(point).group);
  }
  if (used.size() < kLeastPoints) {
    throw UserError(fmt::format("attention: {} points to fit to, at least {} are needed", used.size(), kLeastPoints));
  }
  gpu.attention_row.x.assign(groups.begin(), groups.end());
  gpu.attention_row.y.assign(groups.size(), kRowStart);

  const std::vector<Structure> all = structures();
  std::vector<double> losses(all.size());
  parallel_for(all.size(), hardware_threads(), [&](std::size_t i) { losses[i] = cross_validate(used, all[i], gpu); });
  const auto best = std::min_element(losses.begin(), losses.end());
  set(gpu, all[static_cast<std::size_t>(best - losses.begin())]);
  solve_without(used, -1, gpu);
  set_range(used, gpu);
  return {static_cast<int>(all.size()), *best};
}

}  // namespace kvcast::calibrate
