#include "calibrate/fit_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "calibrate/write.hpp"
#include "hardware/number.hpp"
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

// The errors that a stage is allowed: its budget plus the noise of its own rows, which no model can predict.
void set_budget(config::Calibration& c, const MachineRequest& request, Cases cases) {
  constexpr double kMedianOfNormal = 0.67, kP90OfNormal = 1.64;  // of the absolute value, in standard deviations
  std::vector<double> noise;
  for (const MeasuredOp& one : cases) noise.push_back(one.noise);
  const double typical = metrics::summarise_errors(noise).median;
  c.budget_median = std::hypot(request.budget_median, kMedianOfNormal * typical);
  c.budget_p90 = std::hypot(request.budget_p90, kP90OfNormal * typical);
}

config::Calibration calibration_of(const Stage& stage, Cases cases, const config::Hardware& hardware,
                                   const MachineRequest& request) {
  config::Calibration c;
  c.kernel = stage.name, c.points = request.name;
  c.fit = residuals(hardware, cases, false), c.held_out = residuals(hardware, cases, true);
  c.repeated = repeated(cases);
  set_budget(c, request, cases);
  return c;
}

// Why the budget is missed; empty where it is kept. A stage with few cases is judged by those that it was fitted to.
std::string missed(const config::Calibration& c) {
  const bool held_out = c.held_out.n > 0;
  const config::Calibration::Residuals& r = held_out ? c.held_out : c.fit;
  if (r.median <= c.budget_median && r.p90 <= c.budget_p90) return "";
  return fmt::format(
      "{}: errors of {} {} cases {:.1f} % in the median and {:.1f} % at p90, {:.1f} and {:.1f} % allowed", c.kernel,
      r.n, held_out ? "held-out" : "fitted", 100 * r.median, 100 * r.p90, 100 * c.budget_median, 100 * c.budget_p90);
}

std::vector<std::string> fit_one(const Stage& stage, Cases cases, const Trial& trial, config::Hardware& hardware) {
  if (stage.place) stage.place(cases, hardware);
  if (stage.fit) return stage.fit(cases, trial, hardware);
  return fit_stage(stage.name, stage.keys, cases, trial.prior, hardware);
}

struct Fitted {
  const Stage* stage;
  std::vector<MeasuredOp> cases;
  std::vector<std::string> at_bounds;
};

// A stage that has too few cases, or whose model does not fit them, leaves the machine as it was and does not stop the
// other stages.
std::optional<Fitted> fit(const Stage& stage, std::vector<MeasuredOp> cases, const MachineRequest& request,
                          MachineResult& result) {
  config::Hardware hardware = result.hardware;
  Fitted fitted{&stage, std::move(cases), {}};
  try {
    fitted.at_bounds = fit_one(stage, fitted.cases, {request.base}, hardware);
  } catch (const TooFewCases& few) {
    result.too_few.emplace_back(few.what());
    result.left_out.emplace_back(stage.name);
    return std::nullopt;
  }
  if (const std::string why = missed(calibration_of(stage, fitted.cases, hardware, request)); !why.empty()) {
    result.misses.push_back(why);
    return std::nullopt;
  }
  result.hardware = std::move(hardware);
  return fitted;
}

config::Knob knob_of(config::Hardware& hardware, std::string_view key) {
  for (config::Knob& knob : config::knobs(hardware)) {
    if (knob.key == key) return knob;
  }
  KVCAST_CHECK(!"no such number");
  return {};
}

// Numbers of later stages change the predictions of earlier ones. A stage that misses its budget because of them gets
// its old numbers back, until all stages that are left are within theirs.
void drop_spoilt(std::vector<Fitted>& fitted, const MachineRequest& request, MachineResult& result) {
  config::Hardware base = request.base;
  const auto spoilt = [&](const Fitted& one) {
    const std::string why = missed(calibration_of(*one.stage, one.cases, result.hardware, request));
    if (!why.empty()) result.misses.push_back(why);
    return !why.empty();
  };
  for (auto at = fitted.begin(); (at = std::find_if(fitted.begin(), fitted.end(), spoilt)) != fitted.end();) {
    for (const std::string_view key : at->stage->keys) {
      const config::Knob now = knob_of(result.hardware, key), before = knob_of(base, key);
      now.value ? void(*now.value = *before.value) : void(*now.curve = *before.curve);
    }
    fitted.erase(at);
  }
}

// Cases with other weights, as a sample of other cases would have them (the Bayesian bootstrap, Rubin 1981).
std::vector<MeasuredOp> redrawn(const std::vector<MeasuredOp>& cases, const Stream& stream) {
  std::vector<MeasuredOp> all = cases;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].weight = 0.01 - std::log1p(-stream.uniform(i));
  return all;
}

// Beliefs that are off by as much as they may be: what no case tells must show how little is known of it.
config::Hardware redrawn(const config::Hardware& prior, const Stream& stream) {
  config::Hardware other = prior;
  std::uint64_t i = 0;
  for (const config::Knob& knob : config::knobs(other)) {
    const double width = belief_width(knob.value ? knob.value->uncertainty : knob.curve->uncertainty);
    const double factor = std::exp(width * stream.normal(i++));
    const double most = knob.y == Dimension::kFraction ? 1 : std::numeric_limits<double>::infinity();
    if (knob.value) knob.value->value = std::min(most, factor * knob.value->value);
    if (!knob.curve) continue;
    for (double& y : knob.curve->y) y = std::min(most, factor * y);
  }
  return other;
}

double difference(const config::Knob& found, const config::Knob& other) {
  if (found.value) return std::abs(other.value->value / found.value->value - 1);
  double most = 0;
  for (std::size_t i = 0; i < found.curve->x.size(); ++i) {
    most = std::max(most, std::abs(hardware::at(*other.curve, found.curve->x[i]).value / found.curve->y[i] - 1));
  }
  return most;
}

// The 90th percentile, for each key, of how far refits to resampled cases are from the numbers of the machine.
std::map<std::string_view, double> spreads(const std::vector<Fitted>& fitted, const config::Hardware& base,
                                           const config::Hardware& machine) {
  constexpr std::size_t kRedraws = 32;
  std::vector<std::map<std::string_view, double>> tried(kRedraws);
  parallel_for(kRedraws, hardware_threads(), [&](std::size_t i) {
    const Stream stream = Stream(19).child({i});
    config::Hardware found = machine, other = machine;
    const config::Hardware prior = redrawn(base, stream.child({0}));
    for (std::size_t s = 0; s < fitted.size(); ++s) {
      const std::vector<MeasuredOp> cases = redrawn(fitted[s].cases, stream.child({1, s}));
      fit_one(*fitted[s].stage, cases, {prior, i + 1}, other);
      for (const std::string_view key : fitted[s].stage->keys) {
        tried[i][key] = difference(knob_of(found, key), knob_of(other, key));
      }
    }
  });
  std::map<std::string_view, double> all;
  for (const auto& [key, first] : tried.front()) {
    std::vector<double> sorted;
    for (const auto& one : tried) sorted.push_back(one.at(key));
    std::sort(sorted.begin(), sorted.end());
    all[key] = sorted[kRedraws * 9 / 10];
  }
  return all;
}

void mark(const Fitted& one, const std::map<std::string_view, double>& spreads, const std::string& source,
          MachineResult& result) {
  const double least = one.cases.size() < kFew ? kUncertaintyOfFew : kLeastUncertainty;
  // Cases that were not seen tell more where a table follows those that were.
  const double off = std::max(
      {least, residuals(result.hardware, one.cases, false).p90, residuals(result.hardware, one.cases, true).p90});
  for (const std::string_view key : one.stage->keys) {
    mark_fitted(result.hardware, {&key, 1}, std::max(off, spreads.at(key)), source);
  }
  for (const std::string& key : one.at_bounds) result.at_bounds.push_back(fmt::format("{}: {}", one.stage->name, key));
}

}  // namespace

void fit_stages(std::span<const Stage> stages, std::span<const MeasuredOp> cases, const Results& results,
                const MachineRequest& request, MachineResult& result) {
  std::vector<Fitted> fitted;
  for (const Stage& stage : stages) {
    std::vector<MeasuredOp> own = cases_of(stage, cases);
    if (own.empty()) {
      result.left_out.emplace_back(stage.name);
    } else if (std::optional<Fitted> one = fit(stage, std::move(own), request, result)) {
      fitted.push_back(std::move(*one));
    }
  }
  drop_spoilt(fitted, request, result);
  if (fitted.empty()) return;
  const std::string device = text_of(results, "device", "");
  const std::string on = device.empty() ? text_of(results, "host_cpu", "unknown processor") : device;
  const std::string date = text_of(results, "date", "unknown date");
  const std::string source = fmt::format("kvcast's measuring program on {}", on);
  const auto by_key = spreads(fitted, request.base, result.hardware);
  for (const Fitted& one : fitted) {
    mark(one, by_key, fmt::format("{}, {}: {} cases", source, date, one.cases.size()), result);
  }
  // Errors are those of the whole machine, rounded as it is written.
  for (const Fitted& one : fitted) {
    config::Calibration c = calibration_of(*one.stage, one.cases, result.hardware, request);
    c.date = date, c.source = source;
    result.calibrations.push_back(std::move(c));
  }
}

MeasuredOp measured(const Row& row) {
  MeasuredOp one;
  one.id = row.id(), one.bench = row.bench, one.seconds = row.seconds;
  one.spread = row.spread, one.noise = row.noise;
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
