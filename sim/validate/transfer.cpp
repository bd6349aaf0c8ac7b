#include "validate/transfer.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/points.hpp"
#include "config/find.hpp"
#include "config/include.hpp"
#include "config/left_out.hpp"
#include "graph/traffic.hpp"
#include "hardware/cost_model.hpp"

namespace kvcast::validate {
namespace {

// Uncertainties that the profiles of such GPUs state (docs/cards.md); of one die, as gh200's.
constexpr double kWithin = 0.12, kAcross = 0.3;
constexpr double kMost = 0.999;  // uncertainty of a lower bound above zero

// GH100 is the only architecture with two fitted GPUs.
bool is_gh100(const std::string& name) { return name.starts_with("h100") || name.starts_with("h200"); }
bool same_architecture(const std::string& a, const std::string& b) { return is_gh100(a) && is_gh100(b); }

// A framework's profile of a device, and the points held out of its fit.
struct Fitted {
  std::string device, framework;
  config::Hardware machine;
  std::vector<calibrate::MeasuredPoint> held_out;
};

// The suite kernels names the files that cannot be read.
std::vector<Fitted> fitted_machines() {
  std::vector<Fitted> all;
  config::Unread unread;
  for (const std::string& file : config::config_files("hardware")) {
    Fitted fitted;
    if (!unread.attempt([&] { return fitted.machine = config::read_hardware(file), true; })) continue;
    for (const config::Calibration& c : fitted.machine.calibrations) {
      if (!c.points.ends_with(".csv")) continue;
      for (calibrate::MeasuredPoint& point : calibrate::read_points(config::find_config("hardware", c.points, {}))) {
        const std::vector<std::string>& names = fitted.machine.aliases;
        const std::string name = point.device + "/" + point.framework;
        if (!point.held_out || std::ranges::find(names, name) == names.end()) continue;
        fitted.device = point.device, fitted.framework = point.framework;
        fitted.held_out.push_back(std::move(point));
      }
    }
    if (!fitted.held_out.empty()) all.push_back(std::move(fitted));
  }
  return all;
}

// Returns whether the GPU's own fit covers such kernels.
bool knows(const Fitted& fitted, const calibrate::MeasuredPoint& point) {
  return std::ranges::any_of(fitted.held_out,
                             [&](const calibrate::MeasuredPoint& own) { return own.attention() == point.attention(); });
}

}  // namespace

config::Hardware derived(const config::Hardware& from, const config::Hardware& to) {
  config::Hardware out = from;
  out.title = to.title, out.fit = config::TimesOrigin::kDerived, out.derived_from = from.name;
  const config::Gpu &a = from.gpu, &b = to.gpu;
  config::Gpu& g = out.gpu;
  const double cores = b.sm_count * b.clock / (a.sm_count * a.clock);
  const bool within = same_architecture(from.name, to.name);
  if (!within) out.fit = config::TimesOrigin::kNone;
  for (const config::Knob& knob : config::knobs(out)) {
    if (!knob.key.starts_with("host.")) config::assume(knob, from.name, within ? kWithin : kAcross);
  }
  g.hbm_capacity = b.hbm_capacity, g.hbm_bandwidth = b.hbm_bandwidth;
  g.tensor_flops = b.tensor_flops, g.vector_flops = b.vector_flops;
  g.sm_count = b.sm_count, g.clock = b.clock, g.l2_capacity = b.l2_capacity;
  const auto l2 = [&](config::AttentionKernel& kernel) {
    kernel.l2_bandwidth.value = std::max(kernel.l2_bandwidth * cores, double{b.hbm_bandwidth});
  };
  l2(g.attention);
  if (g.attention_mha) l2(*g.attention_mha);
  out.link = to.link;
  return out;
}

double roofline_seconds(const graph::Work& work, const config::Gpu& gpu) {
  const graph::ByteCounts moved = graph::traffic_of(work);
  double flops = 0;
  if (const auto* gemm = std::get_if<graph::Gemm>(&work)) flops = 2 * gemm->m * gemm->n * gemm->k;
  if (const auto* prompt = std::get_if<graph::PrefillAttention>(&work)) flops = prompt->flops;
  if (const auto* decode = std::get_if<graph::DecodeAttention>(&work)) {
    flops = 4 * decode->tokens * decode->group * decode->head_dim;
  }
  return std::max((moved.hbm_read + moved.hbm_write) / gpu.hbm_bandwidth, flops / gpu.tensor_flops);
}

void set_interval(Case& c, double uncertainty, double half_width) {
  c.low = *c.predicted * std::exp(-std::hypot(std::log1p(-std::min(kMost, uncertainty)), half_width));
  c.high = *c.predicted * std::exp(std::hypot(std::log1p(uncertainty), half_width));
}

std::vector<Case> transfers() {
  std::vector<Case> cases;
  const std::vector<Fitted> machines = fitted_machines();
  for (const Fitted& to : machines) {
    for (const Fitted& from : machines) {
      if (from.device == to.device || from.framework != to.framework) continue;
      const hardware::CostModel model(derived(from.machine, to.machine), {});
      const bool within = model.hardware().fit == config::TimesOrigin::kDerived;
      for (const calibrate::MeasuredPoint& point : to.held_out) {
        if (!knows(from, point)) continue;
        const hardware::Cost cost = model.cost(point.op);
        Case& c = cases.emplace_back();
        c.id = fmt::format("{}:{}:{}", from.device, to.device, point.where.line);
        c.group = within ? kDerivedCards : kOtherCards;
        c.quantity = point.attention() ? "decode attention" : "GEMM";
        c.unit = "us";
        c.expected = point.seconds * kMicro, c.predicted = cost.alone * kMicro;
        c.baseline = roofline_seconds(point.op.work, to.machine.gpu) * kMicro;
        set_interval(c, cost.uncertainty, config::left_out().of(model.hardware().fit));
        c.origin = cost.origin;
        c.source = fmt::format("{}, {}, as if it were known as {} alone", to.device, to.framework, from.device);
        c.verdict = verdict_of(c, false);
      }
    }
  }
  return cases;
}

}  // namespace kvcast::validate
