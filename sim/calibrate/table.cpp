#include "calibrate/table.hpp"

#include <fmt/format.h>

#include "calibrate/attention.hpp"
#include "calibrate/gemm.hpp"
#include "calibrate/points.hpp"
#include "calibrate/predict.hpp"
#include "calibrate/write.hpp"

namespace kvcast::calibrate {
namespace {

constexpr std::string_view kAttentionKeys[] = {
    "gpu.floor_attention",   "gpu.attention_row",        "gpu.attention_merge", "gpu.attention_tile",
    "gpu.attention_padding", "gpu.attention_part",       "gpu.attention_parts", "gpu.attention_tile_time",
    "gpu.attention_overlap", "gpu.attention_efficiency", "gpu.l2_bandwidth"};
constexpr std::string_view kGemmKeys[] = {"gpu.floor_gemm", "gpu.gemm_memory_efficiency", "gpu.gemm_row_loss",
                                          "gpu.gemm_compute_efficiency", "gpu.gemm_overlap"};

// Keys of the numbers of every attention kernel that the fit has found.
std::vector<std::string> attention_keys(const config::Gpu& gpu) {
  std::vector<std::string> keys(std::begin(kAttentionKeys), std::end(kAttentionKeys));
  if (!gpu.attention_mha) return keys;
  for (const std::string_view key : kAttentionKeys) {
    keys.push_back(fmt::format("gpu.attention_mha.{}", key.substr(key.find('.') + 1)));
  }
  return keys;
}

void check_one_kernel(const std::vector<MeasuredPoint>& points) {
  const MeasuredPoint& first = points.front();
  for (const MeasuredPoint& point : points) {
    if (point.device == first.device && point.framework == first.framework && point.kernel == first.kernel) continue;
    throw UserError(point.where, "one device, framework and kernel a file: a fit is for one of them");
  }
}

config::Calibration::Residuals residuals(const metrics::ErrorSummary& s) { return {s.n, s.median, s.p90}; }

std::vector<MeasuredPoint> large_ones(const std::vector<MeasuredPoint>& points, const config::Gpu& gpu) {
  std::vector<MeasuredPoint> large;
  for (const MeasuredPoint& point : points) {
    if (beyond_cache(point, gpu.l2_capacity)) large.push_back(point);
  }
  return large;
}

void judge(const config::Calibration& c, std::vector<std::string>& misses) {
  const auto check = [&](const char* what, double value, double limit) {
    if (value > limit) {
      misses.push_back(
          fmt::format("{}: {} error {:.1f} %, {:.1f} % allowed", c.points, what, 100 * value, 100 * limit));
    }
  };
  check("median", c.judged().median, c.budget_median);
  check("p90", c.judged().p90, c.budget_p90);
}

void fit_file(const TableRequest& request, const std::string& file, TableResult& result) {
  const std::vector<MeasuredPoint> points = read_points(file);
  check_one_kernel(points);
  config::Gpu& gpu = result.hardware.gpu;
  const bool attention = points.front().attention();
  std::string model;
  double uncertainty = 0;  // for numbers that the points hardly identify
  std::vector<std::string> names(std::begin(kGemmKeys), std::end(kGemmKeys));
  if (attention) {
    const AttentionFit fit = fit_attention_by_heads(points, gpu);
    model = fmt::format("best of {} structures in cross-validation{}", fit.candidates,
                        gpu.attention_mha ? ", query heads with KV heads of their own apart" : "");
    uncertainty = fit.left_out_p90;
    names = attention_keys(gpu);
  } else {
    const GemmFit fit = fit_gemm(points, nullptr, gpu);
    model = fmt::format("memory efficiency {}", fit.memory_points > 2 ? "by size of the weights" : "one for all sizes");
    uncertainty = fit.left_out_p90;
  }
  config::Calibration c;
  c.kernel = attention ? "attention" : "gemm";
  c.points = file, c.date = request.date;
  c.source = fmt::format("{}: {}, {}{}", request.source, points.front().device, points.front().framework,
                         points.front().kernel.empty() ? "" : " (" + points.front().kernel + ")");
  c.budget_median = request.budget_median, c.budget_p90 = request.budget_p90;

  const std::string source = fmt::format("{}; {}", c.source, model);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  mark_fitted(result.hardware, keys, uncertainty, source);
  if (attention && gpu.attention_correction) gpu.attention_correction->source = source;
  c.fit = residuals(errors_of(gpu, points, false));
  c.held_out = residuals(errors_of(gpu, points, true));
  if (c.held_out.n == 0) throw UserError({file, 1, 0}, "no point is held out: a column held_out with some 1 is needed");
  const auto large = residuals(errors_of(gpu, large_ones(points, gpu), true));
  if (large.n > 0) c.beyond_cache = large;
  judge(c, result.misses);
  result.yaml += yaml_of(result.hardware, keys);
  if (attention) result.yaml += yaml_of(gpu.range);
  if (attention && gpu.attention_correction) result.yaml += yaml_of(*gpu.attention_correction);
  result.calibrations.push_back(std::move(c));
}

}  // namespace

TableResult fit_tables(const TableRequest& request) {
  TableResult result;
  result.hardware = request.base;
  for (const std::string& file : request.files) fit_file(request, file, result);
  result.yaml = fmt::format("# Fitted by `kvcast calibrate table` on {}; not written by hand.\ngpu:\n", request.date) +
                result.yaml + yaml_of(result.calibrations);
  return result;
}

}  // namespace kvcast::calibrate
