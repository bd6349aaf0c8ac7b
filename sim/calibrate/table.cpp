#include "calibrate/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/quote.hpp"
#include "calibrate/attention.hpp"
#include "calibrate/gemm.hpp"
#include "calibrate/points.hpp"
#include "calibrate/predict.hpp"
#include "calibrate/write.hpp"
#include "config/find.hpp"

namespace kvcast::calibrate {
namespace {

constexpr std::string_view kAttentionKeys[] = {
    "gpu.floor_attention",   "gpu.attention_row",        "gpu.attention_merge", "gpu.attention_tile",
    "gpu.attention_padding", "gpu.attention_part",       "gpu.attention_parts", "gpu.attention_tile_time",
    "gpu.attention_overlap", "gpu.attention_efficiency", "gpu.l2_bandwidth"};
constexpr std::string_view kGemmKeys[] = {"gpu.floor_gemm", "gpu.gemm_memory_efficiency", "gpu.gemm_row_loss",
                                          "gpu.gemm_compute_efficiency", "gpu.gemm_overlap"};

// Keys of the numbers of every attention kernel that the fit has found. Cold points do not identify the rate of the L2.
std::vector<std::string> attention_keys(const config::Gpu& gpu, const std::vector<MeasuredPoint>& points) {
  std::vector<std::string> keys(std::begin(kAttentionKeys), std::end(kAttentionKeys));
  const auto warm = [](const MeasuredPoint& p) { return std::get<graph::DecodeAttention>(p.op.work).warm; };
  if (std::ranges::none_of(points, warm)) std::erase(keys, "gpu.l2_bandwidth");
  if (!gpu.attention_mha) return keys;
  for (std::size_t i = 0, n = keys.size(); i < n; ++i) {
    keys.push_back(fmt::format("gpu.attention_mha.{}", keys[i].substr(keys[i].find('.') + 1)));
  }
  return keys;
}

struct PointsFile {
  std::string file;
  std::vector<MeasuredPoint> points;

  const MeasuredPoint& first() const { return points.front(); }
  const char* kind() const { return first().attention() ? "attention" : "gemm"; }
};

void check_one_kernel(const std::vector<MeasuredPoint>& points) {
  const MeasuredPoint& first = points.front();
  for (const MeasuredPoint& point : points) {
    if (point.device == first.device && point.framework == first.framework && point.kernel == first.kernel) continue;
    throw UserError(point.where, "one device, framework and kernel a file: a fit is for one of them");
  }
}

// A profile has one set of numbers for each kind of kernel, and they are those of one device and framework.
void check_together(const PointsFile& one, const PointsFile& other) {
  if (one.first().attention() == other.first().attention()) {
    throw UserError(fmt::format("two {} tables: {} and {}; a calibration fits one", one.kind(), one.file, other.file));
  }
  const auto check = [&](const char* column, const std::string& a, const std::string& b) {
    if (a == b) return;
    throw UserError(other.first().where,
                    fmt::format("{} is {}, but {} in {}: the tables of a calibration are of one device and framework",
                                column, quote(b), quote(a), one.file));
  };
  check("device", one.first().device, other.first().device);
  check("framework", one.first().framework, other.first().framework);
}

// Names of a machine's GPU in measurements: those before the slash of "h200_sxm/vllm", and aliases without one.
std::set<std::string> devices_of(const config::Hardware& machine) {
  std::set<std::string> devices;
  for (const std::string& alias : machine.aliases) devices.insert(alias.substr(0, alias.find('/')));
  return devices;
}

// Returns the machine that is known under a device's name in measurements, if any.
std::optional<config::Hardware> machine_of_device(const MeasuredPoint& point) {
  for (const std::string& name : {point.device + "/" + point.framework, point.device}) {
    try {
      return config::read_hardware(config::find_config("hardware", name, {}));
    } catch (const UserError&) {  // no machine has this name
    }
  }
  return {};
}

// Throws if the points were measured on another GPU than the profile's, as far as the names of both are known.
void check_device(const MeasuredPoint& point, const config::Hardware& profile) {
  const std::set<std::string> own = devices_of(profile);
  if (own.empty() || own.contains(point.device)) return;
  const std::optional<config::Hardware> measured_on = machine_of_device(point);
  if (!measured_on || measured_on->name == profile.name) return;
  for (const std::string& device : devices_of(*measured_on)) {
    if (own.contains(device)) return;
  }
  throw UserError(point.where, fmt::format("device {} is {}, but the profile {} is of {}", quote(point.device),
                                           measured_on->title, profile.name, profile.title));
}

std::vector<PointsFile> read_tables(const TableRequest& request) {
  std::vector<PointsFile> tables;
  for (const std::string& file : request.files) {
    PointsFile table{file, read_points(file)};
    check_one_kernel(table.points);
    check_device(table.first(), request.base);
    for (const PointsFile& other : tables) check_together(other, table);
    tables.push_back(std::move(table));
  }
  return tables;
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
    if (value <= limit) return;
    const int decimals = decimals_apart(value, limit);
    misses.push_back(fmt::format("{}: {} error {:.{}f} %, {:.{}f} % allowed", c.points, what, 100 * value, decimals,
                                 100 * limit, decimals));
  };
  check("median", c.judged().median, c.budget_median);
  check("p90", c.judged().p90, c.budget_p90);
}

void fit_file(const TableRequest& request, const PointsFile& table, TableResult& result) {
  const auto& [file, points] = table;
  config::Gpu& gpu = result.hardware.gpu;
  const bool attention = table.first().attention();
  std::string model;
  double uncertainty = 0;  // for numbers that the points hardly identify
  std::vector<std::string> names(std::begin(kGemmKeys), std::end(kGemmKeys));
  if (attention) {
    const AttentionFit fit = fit_attention_by_heads(points, gpu);
    model = fmt::format("best of {} structures in cross-validation{}", fit.candidates,
                        gpu.attention_mha ? ", query heads with KV heads of their own apart" : "");
    uncertainty = fit.left_out_spread;
    names = attention_keys(gpu, points);
  } else {
    const GemmFit fit = fit_gemm(points, nullptr, gpu);
    model = fmt::format("memory efficiency {}", fit.memory_points > 2 ? "by size of the weights" : "one for all sizes");
    uncertainty = fit.left_out_spread;
  }
  config::Calibration c;
  c.kernel = table.kind();
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
  for (const PointsFile& table : read_tables(request)) {
    at_location({table.file, 0, 0}, [&] { fit_file(request, table, result); });
  }
  result.yaml = fmt::format("# Fitted by `kvcast calibrate table` on {}; not written by hand.\ngpu:\n", request.date) +
                result.yaml + yaml_of(result.calibrations);
  return result;
}

}  // namespace kvcast::calibrate
