#include "calibrate/fit_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "base/parallel.hpp"
#include "base/quantile.hpp"
#include "base/random.hpp"
#include "calibrate/write.hpp"
#include "hardware/number.hpp"
#include "metrics/errors.hpp"

namespace kvcast::calibrate {
namespace {

// Residuals of a few cases say little: with fewer degrees of freedom they may pass through every point.
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

// Quantiles of the absolute value of a normal variable, in standard deviations.
constexpr double kMedianOfNormal = 0.67, kP90OfNormal = 1.64;

double typical_noise(Cases cases) {
  std::vector<double> noise;
  for (const MeasuredOp& one : cases) noise.push_back(one.noise);
  return metrics::summarise_errors(noise).median;
}

// Sets the errors that a stage is allowed: its budget plus the noise of its own rows, which no model can predict.
void set_budget(config::Calibration& c, const MachineRequest& request, Cases cases) {
  const double typical = typical_noise(cases);
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

// Explains why the budget is missed; empty if it is kept. A stage with few cases is judged by those that it was fitted
// to.
std::string missed(const config::Calibration& c) {
  const bool held_out = c.held_out.n > 0;
  const config::Calibration::Residuals& r = held_out ? c.held_out : c.fit;
  if (r.median <= c.budget_median && r.p90 <= c.budget_p90) return "";
  const int of_median = decimals_apart(r.median, c.budget_median), of_p90 = decimals_apart(r.p90, c.budget_p90);
  return fmt::format(
      "{}: errors of {} {} cases {:.{}f} % in the median and {:.{}f} % at p90, {:.{}f} and {:.{}f} % allowed", c.kernel,
      r.n, held_out ? "held-out" : "fitted", 100 * r.median, of_median, 100 * r.p90, of_p90, 100 * c.budget_median,
      of_median, 100 * c.budget_p90, of_p90);
}

std::vector<std::string> fit_one(const Stage& stage, Cases cases, const Trial& trial, config::Hardware& hardware) {
  if (stage.place) stage.place(cases, hardware);
  if (stage.fit) return stage.fit(cases, trial, hardware);
  return fit_stage(stage.name, stage.keys, cases, trial.prior, hardware);
}

// Returns whether the base describes the chip that was measured.
bool same_chip(const config::Gpu& base, const config::Gpu& measured) {
  constexpr double kClose = 0.05;  // of peaks, which the driver works out from clocks
  const auto close = [](double a, double b) { return std::abs(a / b - 1) < kClose; };
  return base.sm_count.value == measured.sm_count.value &&
         close(base.tensor_flops.value, measured.tensor_flops.value) &&
         close(base.hbm_bandwidth.value, measured.hbm_bandwidth.value);
}

// Why the machine's numbers stay: they have a source, and kvcast's own kernels are slower than they say. Empty where
// the cases count.
std::string only_a_bound(const Stage& stage, Cases cases, const config::Hardware& machine,
                         const MachineRequest& request) {
  constexpr double kClearly = 1.05;
  if (!stage.libraries || (request.own_kernels && stage.in_pipelines) || !same_chip(request.base.gpu, machine.gpu))
    return "";
  std::vector<double> ratios;
  const std::vector<double> predicted = predict(machine, cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].by.empty()) ratios.push_back(cases[i].seconds / predicted[i]);
  }
  if (2 * ratios.size() <= cases.size()) return "";
  const double times = quantile(ratios, 0.5);
  config::Hardware copy = machine;
  const auto knobs = config::knobs(copy);
  const bool known = std::ranges::any_of(knobs, [&](const config::Knob& knob) {
    const bool own = std::ranges::find(stage.keys, knob.key) != stage.keys.end();
    return own && (knob.value ? knob.value->origin : knob.curve->origin) != Origin::kAssumed;
  });
  if (!known || times < kClearly) return "";
  return fmt::format(
      "{}: kvcast's own kernels take {:.2f} times as long as the numbers of the base, which have a source; results of "
      "libraries (kernels/library.py) would replace them",
      stage.name, times);
}

struct Fitted {
  const Stage* stage;
  std::vector<MeasuredOp> cases;
  std::vector<std::string> at_bounds;
};

// Fits one stage. A stage that has too few cases, or whose model does not fit them, leaves the machine unchanged and
// does not stop the other stages.
std::optional<Fitted> fit(const Stage& stage, std::vector<MeasuredOp> cases, const MachineRequest& request,
                          MachineResult& result) {
  config::Hardware hardware = result.hardware;
  if (std::string why = only_a_bound(stage, cases, hardware, request); !why.empty()) {
    result.bounds_below.push_back(std::move(why));
    return std::nullopt;
  }
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

// Numbers of later stages change the predictions of earlier ones. A stage that misses its budget because of them gets
// its old numbers back, until all remaining stages are within theirs.
void drop_spoilt(std::vector<Fitted>& fitted, const MachineRequest& request, MachineResult& result) {
  config::Hardware base = request.base;
  const auto spoilt = [&](const Fitted& one) {
    const std::string why = missed(calibration_of(*one.stage, one.cases, result.hardware, request));
    if (!why.empty()) result.misses.push_back(why);
    return !why.empty();
  };
  for (auto at = fitted.begin(); (at = std::ranges::find_if(fitted, spoilt)) != fitted.end();) {
    for (const std::string_view key : at->stage->keys) {
      const config::Knob now = config::knob_of(result.hardware, key), before = config::knob_of(base, key);
      now.value ? void(*now.value = *before.value) : void(*now.curve = *before.curve);
    }
    fitted.erase(at);
  }
}

// Reweights cases as another sample of cases would (the Bayesian bootstrap, Rubin 1981).
std::vector<MeasuredOp> redrawn(const std::vector<MeasuredOp>& cases, const Stream& stream) {
  std::vector<MeasuredOp> all = cases;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].weight = 0.01 - std::log1p(-stream.uniform(i));
  return all;
}

// Redraws priors within their uncertainty, so that numbers which no case identifies show how uncertain they are.
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

// The 90th percentile of the relative difference between two machines' predictions of the stage's cases.
double difference(const Fitted& one, const config::Hardware& found, const config::Hardware& other) {
  const std::vector<double> a = predict(found, one.cases), b = predict(other, one.cases);
  std::vector<double> changes;
  for (std::size_t i = 0; i < a.size(); ++i) changes.push_back(std::abs(b[i] / a[i] - 1));
  return quantile(changes, 0.9);
}

// For each key, the 90th percentile of the difference between refits to resampled cases and the numbers of the machine.
// Keys of a stage that searches for a structure compensate for one another, and no op is based on one of them alone:
// for them it is the difference between the times that they predict together.
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
      std::optional<double> together;
      if (fitted[s].stage->fit) together = difference(fitted[s], found, other);
      for (const std::string_view key : fitted[s].stage->keys) {
        tried[i][key] = together ? *together : difference(config::knob_of(found, key), config::knob_of(other, key));
      }
    }
  });
  std::map<std::string_view, double> all;
  for (const auto& [key, first] : tried.front()) {
    std::vector<double> sorted;
    for (const auto& one : tried) sorted.push_back(one.at(key));
    std::ranges::sort(sorted);
    all[key] = sorted[kRedraws * 9 / 10];
  }
  return all;
}

// ", 12 of them of FlashInfer 0.3": the libraries whose kernels were measured.
std::string libraries_of(Cases cases) {
  std::map<std::string, int> libraries;
  for (const MeasuredOp& one : cases) {
    if (!one.by.empty()) ++libraries[one.by];
  }
  std::string text;
  for (const auto& [name, n] : libraries) text += fmt::format(", {} of them of {}", n, name);
  return text;
}

void mark(const Fitted& one, const std::map<std::string_view, double>& spreads, const std::string& source,
          MachineResult& result) {
  const auto n = static_cast<double>(one.cases.size());
  const double least = std::max(one.cases.size() < kFew ? kUncertaintyOfFew : kLeastUncertainty,
                                kP90OfNormal * typical_noise(one.cases) / std::sqrt(n));
  // For a table that follows its cases, the held-out ones are more informative.
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
    mark(one, by_key, fmt::format("{}, {}: {} cases{}", source, date, one.cases.size(), libraries_of(one.cases)),
         result);
  }
  // Errors are those of the whole machine, rounded as it is written.
  for (const Fitted& one : fitted) {
    config::Calibration c = calibration_of(*one.stage, one.cases, result.hardware, request);
    c.date = date, c.source = source;
    result.calibrations.push_back(std::move(c));
  }
}

MeasuredOp measured(const MeasuredRow& row) {
  MeasuredOp one;
  if (const auto by = row.words.find("by"); by != row.words.end()) one.by = by->second;
  one.id = row.id(), one.bench = row.bench, one.seconds = row.seconds;
  one.spread = row.spread, one.noise = row.noise;
  return one;
}

std::vector<MeasuredOp> cases_of(const Stage& stage, std::span<const MeasuredOp> cases) {
  std::vector<MeasuredOp> own;
  for (const MeasuredOp& one : cases) {
    if (std::ranges::find(stage.benches, one.bench) != stage.benches.end()) own.push_back(one);
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

void check_program(const Results& results, const std::string& program) {
  const std::string found = text_of(results, "program", "");
  if (found.empty() || found == program) return;
  throw UserError({results.file, 0, 0},
                  fmt::format("results of {}; this calibration fits those of {}", found, program));
}

std::string text_of(const Results& results, const char* key, const char* fallback) {
  const auto at = results.texts.find(key);
  return at == results.texts.end() || at->second.empty() ? fallback : at->second;
}

double quantity_of(const Results& results, const char* key, double fallback) {
  const auto at = results.quantities.find(key);
  return at == results.quantities.end() || !(at->second > 0) ? fallback : at->second;
}

}  // namespace kvcast::calibrate
