#include "calibrate/stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "calibrate/solve.hpp"
#include "hardware/cost_model.hpp"
#include "hardware/number.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kReach = 1000;
constexpr double kFromZero = 0.1e-6;  // seconds from which the search for a time starts that the machine has as 0
constexpr std::size_t kOneIn = 4, kFirst = 2;

// The machine with some of its CPU workers: rates fall with the busy ones as they do on all of them.
config::Hardware with_threads(config::Hardware machine, double threads) {
  config::Host& host = machine.host;
  const double all = host.cores, used = std::min(threads, all);
  if (all > 1) host.all_core_derate.value = 1 - (1 - host.all_core_derate) * (used - 1) / (all - 1);
  host.cores.value = used;
  return machine;
}

double demand_of(const hardware::Cost& cost, std::initializer_list<hardware::Resource> resources) {
  for (const hardware::Demand& demand : cost.demands) {
    if (std::ranges::find(resources, demand.resource) != resources.end()) return demand.amount;
  }
  return 0;
}

double seconds_of(const MeasuredOp& one, const hardware::CostModel& model) {
  using hardware::Resource;
  const config::Hardware& machine = model.hardware();
  switch (one.measure) {
    case Measure::kAlone:
      return model.cost(one.op).alone;
    case Measure::kIssue: {
      const hardware::Cost cost = model.cost(one.op);
      return cost.issue ? cost.issue->first + cost.issue->rest : demand_of(cost, {Resource::kHostThread});
    }
    case Measure::kEngine:
      return machine.link.copy_latency + demand_of(model.cost(one.op), {Resource::kH2d, Resource::kD2h});
    case Measure::kStreamGap:
      return one.count * machine.gpu.gap_stream;
    case Measure::kGraphGap:
      return one.count * machine.gpu.gap_graph;
    case Measure::kBothWays: {
      // Both engines start their pieces concurrently, and the bytes of both share the link.
      const auto& copy = std::get<graph::Copy>(one.op.work);
      return machine.link.copy_latency + copy.runs * hardware::at(machine.link.engine_piece, copy.run_bytes).value +
             one.count / machine.link.both_bandwidth;
    }
  }
  KVCAST_CHECK(!"an unknown measure");
  return 0;
}

// The numbers under the keys, one per value or point of a curve, as logarithms: they are positive and span unknown
// magnitudes.
struct Numbers {
  std::vector<double*> values;
  std::vector<FitParameter> parameters;

  void add(std::string_view key, double& value, double high, double believed, double uncertainty) {
    const double start = std::log(value > 0 ? value : kFromZero);
    const double most = std::min(start + std::log(kReach), std::log(high));
    values.push_back(&value);
    // A 0 means that the number is unknown, so it is no prior.
    const double width = believed > 0 ? belief_width(uncertainty) : 0;
    parameters.push_back({std::string(key), start - std::log(kReach), most, std::min(start, most),
                          width > 0 ? std::log(believed) : start, width});
  }
  void set(std::span<const double> logarithms) const {
    for (std::size_t i = 0; i < values.size(); ++i) *values[i] = std::exp(logarithms[i]);
  }
};

Numbers numbers_of(config::Hardware& hardware, const config::Hardware& prior, std::span<const std::string_view> keys) {
  Numbers all;
  const auto knobs = config::knobs(hardware);
  const auto believed = config::knobs(prior);
  for (const std::string_view key : keys) {
    const auto named = [&](const auto& knob) { return knob.key == key; };
    const auto knob = std::ranges::find_if(knobs, named);
    const auto same = std::ranges::find_if(believed, named);
    KVCAST_CHECK(knob != knobs.end() && same != believed.end());
    const double most = knob->y == Dimension::kFraction ? 1 : std::numeric_limits<double>::infinity();
    if (knob->value != nullptr) {
      all.add(key, knob->value->value, most, *same->value, same->value->uncertainty);
      continue;
    }
    for (std::size_t i = 0; i < knob->curve->y.size(); ++i) {
      all.add(key, knob->curve->y[i], most, hardware::at(*same->curve, knob->curve->x[i]).value,
              same->curve->uncertainty);
    }
  }
  return all;
}

}  // namespace

hardware::CostModel stream_model(const config::Hardware& machine) {
  config::Framework framework;
  framework.launch = config::Framework::Launch::kCompiled;
  return {machine, framework};
}

double belief_width(double uncertainty) { return std::log1p(std::max(uncertainty, kLeastDoubt)); }

void hold_out(std::vector<MeasuredOp>& cases, std::size_t least) {
  std::map<std::string, std::size_t> seen, all;
  for (const MeasuredOp& one : cases) ++all[one.bench];
  for (MeasuredOp& one : cases) one.held_out = seen[one.bench]++ % kOneIn == kFirst && all[one.bench] >= least;
}

std::vector<double> predict(const config::Hardware& hardware, std::span<const MeasuredOp> cases) {
  std::map<double, hardware::CostModel> models;
  std::vector<double> seconds;
  for (const MeasuredOp& one : cases) {
    auto at = models.find(one.threads);
    if (at == models.end()) {
      at = models
               .emplace(one.threads,
                        one.threads > 0 ? stream_model(with_threads(hardware, one.threads)) : stream_model(hardware))
               .first;
    }
    seconds.push_back(seconds_of(one, at->second));
  }
  return seconds;
}

std::vector<double> relative_errors(const config::Hardware& hardware, std::span<const MeasuredOp> cases,
                                    bool held_out) {
  const std::vector<double> predicted = predict(hardware, cases);
  std::vector<double> errors;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].held_out == held_out) errors.push_back(predicted[i] / cases[i].seconds - 1);
  }
  return errors;
}

std::vector<std::string> fit_stage(std::string_view name, std::span<const std::string_view> keys,
                                   std::span<const MeasuredOp> cases, const config::Hardware& prior,
                                   config::Hardware& hardware) {
  std::vector<MeasuredOp> used;
  std::vector<double> weights;
  for (const MeasuredOp& one : cases) {
    if (one.held_out) continue;
    used.push_back(one);
    weights.push_back(one.weight);
  }
  const Numbers numbers = numbers_of(hardware, prior, keys);
  if (used.size() < numbers.values.size()) {
    throw TooFewCases(
        fmt::format("{}: {} cases to fit {} numbers to; measure more", name, used.size(), numbers.values.size()));
  }
  const Solution solution =
      solve(numbers.parameters, weights, [&](std::span<const double> values, std::span<double> out) {
        numbers.set(values);
        const std::vector<double> predicted = predict(hardware, used);
        for (std::size_t i = 0; i < used.size(); ++i) out[i] = std::log(predicted[i] / used[i].seconds);
      });
  numbers.set(solution.values);
  return solution.at_bounds;
}

}  // namespace kvcast::calibrate
