#include "calibrate/attention_correction.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "calibrate/predict.hpp"
#include "calibrate/smooth.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kGain = 0.1;  // share of the loss that justifies a table

Coordinates coordinates(double rows, double tokens, double group) {
  return {std::log2(rows), std::log2(tokens), std::log2(group)};
}

// Logarithm of measured over predicted time of the kernel alone: the gap before it belongs to the launch.
double log_ratio(const MeasuredPoint& point, const config::Gpu& gpu) {
  const double gap = gpu.gap_graph, modelled = predict(gpu, point);
  return point.seconds > 2 * gap && modelled > gap ? std::log((point.seconds - gap) / (modelled - gap))
                                                   : std::log(point.seconds / modelled);
}

std::vector<double> powers_of_two(double low, double high) {
  std::vector<double> all;
  for (double x = std::exp2(std::floor(std::log2(low))); x < 2 * high; x *= 2) all.push_back(x);
  return all;
}

}  // namespace

int attention_fold(const MeasuredPoint& point) {
  const graph::DecodeAttention& work = attention_of(point);
  const double context = work.tokens / work.rows;
  const auto diagonal = std::lround(std::log2(work.rows) + 3 * std::log2(context));
  return static_cast<int>((diagonal % kSmoothFolds + kSmoothFolds) % kSmoothFolds);
}

std::optional<FittedCorrection> fit_correction(std::span<const MeasuredPoint> points, const config::Gpu& gpu) {
  KVCAST_CHECK(!gpu.attention_correction && !points.empty());
  std::vector<SmoothSample> samples;
  std::set<double> groups;
  double least_rows = 1e9, most_rows = 1, least_tokens = 1e9, most_tokens = 1;
  bool repeated = false;
  for (const MeasuredPoint& point : points) {
    const graph::DecodeAttention& work = attention_of(point);
    const double tokens = work.tokens / work.rows;
    samples.push_back({coordinates(work.rows, tokens, work.group), log_ratio(point, gpu),
                       weight_of(point, gpu.l2_capacity), attention_fold(point)});
    groups.insert(work.group);
    least_rows = std::min(least_rows, work.rows), most_rows = std::max(most_rows, work.rows);
    least_tokens = std::min(least_tokens, tokens), most_tokens = std::max(most_tokens, tokens);
    repeated = repeated || work.warm;
  }
  const Smoothing smoothing = choose_smoothness(samples);
  if (smoothing.loss > (1 - kGain) * smoothing.loss_before) return std::nullopt;

  FittedCorrection fitted{{}, smoothing.loss, smoothing.spread};
  config::AttentionCorrection& correction = fitted.correction;
  correction.rows = powers_of_two(least_rows, most_rows);
  correction.tokens = powers_of_two(least_tokens, most_tokens);
  correction.groups.assign(groups.begin(), groups.end());
  correction.repeated = repeated;
  const Surface surface(samples, smoothing.smoothness);
  for (const double group : correction.groups) {
    for (const double rows : correction.rows) {
      for (const double tokens : correction.tokens) {
        const double excess = std::expm1(surface.at(coordinates(rows, tokens, group)));
        correction.excess.push_back(std::round(1000 * excess) / 10 / 100);  // as read back from tenths of a per cent
      }
    }
  }
  return fitted;
}

}  // namespace kvcast::calibrate
