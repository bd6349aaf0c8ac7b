#include "calibrate/fit_stages.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/write.hpp"
#include "metrics/errors.hpp"

namespace kvcast::calibrate {
namespace {

// Residuals of a few cases say little: they may go through every point.
constexpr std::size_t kFew = 4;
constexpr double kUncertaintyOfFew = 0.05, kLeastUncertainty = 0.01;

config::Calibration::Residuals residuals(const config::Hardware& hardware, std::span<const MeasuredOp> cases,
                                         bool held_out) {
  const metrics::ErrorSummary s = metrics::summarise_errors(relative_errors(hardware, cases, held_out));
  return {s.n, s.median, s.p90};
}

std::optional<config::Calibration::Residuals> repeated(std::span<const MeasuredOp> cases) {
  std::vector<double> spreads;
  for (const MeasuredOp& one : cases) {
    if (one.spread > 0) spreads.push_back(one.spread);
  }
  if (spreads.empty()) return std::nullopt;
  const metrics::ErrorSummary s = metrics::summarise_errors(spreads);
  return config::Calibration::Residuals{s.n, s.median, s.p90};
}

void judge(const config::Calibration& c, std::vector<std::string>& misses) {
  const auto check = [&](const char* what, double value, double limit) {
    if (value <= limit) return;
    misses.push_back(fmt::format("{}: {} error of {} held-out cases {:.1f} %, {:.1f} % allowed", c.kernel, what,
                                 c.held_out.n, 100 * value, 100 * limit));
  };
  check("median", c.held_out.median, c.budget_median);
  check("p90", c.held_out.p90, c.budget_p90);
}

// Where a stage has fewer cases than it needs, the machine stays as it was: a few that are missing, skipped or not
// reached in time, are no reason to refuse what all others say.
bool fit(const Stage& stage, std::span<const MeasuredOp> own, MachineResult& result) {
  config::Hardware hardware = result.hardware;
  try {
    if (stage.fit) {
      stage.fit(own, hardware);
    } else {
      fit_stage(stage.name, stage.keys, own, hardware);
    }
  } catch (const TooFewCases& few) {
    result.too_few.emplace_back(few.what());
    return false;
  }
  result.hardware = std::move(hardware);
  return true;
}

}  // namespace

void fit_stages(std::span<const Stage> stages, std::span<const MeasuredOp> cases, const Results& results,
                const MachineRequest& request, MachineResult& result) {
  std::vector<std::pair<const Stage*, std::vector<MeasuredOp>>> fitted;
  for (const Stage& stage : stages) {
    std::vector<MeasuredOp> own = cases_of(stage, cases);
    if (!own.empty() && fit(stage, own, result)) {
      fitted.emplace_back(&stage, std::move(own));
    } else {
      result.left_out.emplace_back(stage.name);
    }
  }
  // Errors are those of the whole machine: what a later stage found counts for the cases of an earlier one.
  const std::string device = text_of(results, "device", "");
  const std::string on = device.empty() ? text_of(results, "host_cpu", "unknown processor") : device;
  const std::string date = text_of(results, "date", "unknown date");
  for (const auto& [stage, own] : fitted) {
    const std::string source = fmt::format("kvcast's measuring program on {}", on);
    const double least = own.size() < kFew ? kUncertaintyOfFew : kLeastUncertainty;
    // Cases that were not seen tell more where a table follows those that were.
    const double uncertainty =
        std::max({least, residuals(result.hardware, own, false).p90, residuals(result.hardware, own, true).p90});
    mark_fitted(result.hardware, stage->keys, uncertainty, fmt::format("{}, {}: {} cases", source, date, own.size()));
  }
  for (const auto& [stage, own] : fitted) {
    config::Calibration c;
    c.kernel = stage->name, c.points = request.name, c.date = date;
    c.source = fmt::format("kvcast's measuring program on {}", on);
    c.fit = residuals(result.hardware, own, false), c.held_out = residuals(result.hardware, own, true);
    c.repeated = repeated(own);
    c.budget_median = request.budget_median, c.budget_p90 = request.budget_p90;
    judge(c, result.misses);
    result.calibrations.push_back(std::move(c));
  }
}

MeasuredOp measured(const Row& row) {
  MeasuredOp one;
  one.id = row.id(), one.bench = row.bench, one.seconds = row.seconds, one.spread = row.spread;
  return one;
}

std::vector<MeasuredOp> cases_of(const Stage& stage, std::span<const MeasuredOp> cases) {
  std::vector<MeasuredOp> own;
  for (const MeasuredOp& one : cases) {
    if (std::find(stage.benches.begin(), stage.benches.end(), one.bench) != stage.benches.end()) own.push_back(one);
  }
  return own;
}

std::vector<MeasuredOp> cases_of_stage(const Results& results, std::string_view name) {
  for (const Stage& stage : host_stages()) {
    if (stage.name == name) return cases_of(stage, host_cases(results));
  }
  for (const Stage& stage : gpu_stages()) {
    if (stage.name == name) return cases_of(stage, gpu_cases(results));
  }
  return {};
}

std::string text_of(const Results& results, const char* key, const char* fallback) {
  const auto at = results.texts.find(key);
  return plain_text(at == results.texts.end() ? fallback : at->second);
}

double quantity_of(const Results& results, const char* key, double fallback) {
  const auto at = results.quantities.find(key);
  return at == results.quantities.end() || !(at->second > 0) ? fallback : at->second;
}

}  // namespace kvcast::calibrate
