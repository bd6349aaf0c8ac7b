#include "validate/kernels.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "calibrate/machine.hpp"
#include "calibrate/points.hpp"
#include "config/find.hpp"
#include "config/hardware.hpp"
#include "config/left_out.hpp"
#include "graph/traffic.hpp"
#include "hardware/cost_model.hpp"
#include "metrics/errors.hpp"
#include "validate/transfer.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

// Errors of one device and framework, or of all of them.
struct Tally {
  std::vector<double> errors;
  std::int64_t outside_range = 0, no_profile = 0, no_fit = 0, held = 0;
  std::vector<double> baseline;

  json to_json() const {
    const metrics::ErrorSummary s = metrics::summarise_errors(errors), roofline = metrics::summarise_errors(baseline);
    // Without predictions the error is unknown, not zero.
    const auto known = [&s](double x) { return s.n > 0 ? json(x) : json(nullptr); };
    return {{"n", s.n},
            {"median", known(s.median)},
            {"p90", known(s.p90)},
            {"max", known(s.max)},
            {"bias", known(s.bias)},
            {"outside_range", outside_range},
            {"no_fit", no_fit},
            {"in_interval", s.n > 0 ? json(static_cast<double>(held) / static_cast<double>(s.n)) : json(nullptr)},
            {"baseline", {{"median", known(roofline.median)}, {"p90", known(roofline.p90)}}},
            {"no_profile", no_profile}};
  }
};

std::vector<std::string> aliases_of(const std::string& profile) {
  std::vector<std::string> names;
  const config::Node file = config::load_yaml(profile);
  const config::Node* const aliases = file.find("aliases");
  if (aliases == nullptr) return names;
  for (const config::Node& alias : aliases->items()) names.push_back(alias.text());
  return names;
}

// Profiles by "device/framework", looked up once each.
class Profiles {
 public:
  // Null if no profile has that name or alias. A profile of the kernel itself takes precedence over that of its
  // framework.
  const hardware::CostModel* find(const calibrate::MeasuredPoint& point) {
    const std::string name = point.device + "/" + point.framework;
    const hardware::CostModel* of_kernel = point.kernel.empty() ? nullptr : find(name + "/" + point.kernel);
    return of_kernel != nullptr ? of_kernel : find(name);
  }

 private:
  const hardware::CostModel* find(const std::string& name) {
    const auto [at, fresh] = models_.try_emplace(name);
    if (fresh) at->second = load(name);
    return at->second ? &*at->second : nullptr;
  }

  // Returns the path of the profile with that name or alias, if there is one.
  static std::optional<std::string> path_of(const std::string& name) {
    try {
      return config::find_config("hardware", name, {});
    } catch (const UserError&) {
      return {};
    }
  }

  // The same for "device/framework", of which profiles may know another name of the device.
  static std::optional<std::string> path_of_source(const std::string& name) {
    if (const auto path = path_of(name)) return path;
    const std::size_t slash = name.find('/');
    const auto device = path_of(name.substr(0, slash));
    if (!device) return {};
    for (const std::string& alias : aliases_of(*device)) {
      if (const auto path = path_of(alias.substr(0, alias.find('/')) + name.substr(slash))) return path;
    }
    return {};
  }

  static std::optional<hardware::CostModel> load(const std::string& name) {
    const auto path = path_of_source(name);
    if (!path) return {};
    try {
      // Kernel times are measured in a stream or graph of their own and include its overhead.
      return hardware::CostModel(config::read_hardware(*path), config::Framework{});
    } catch (const UserError&) {
      return {};
    }
  }
  std::map<std::string, std::optional<hardware::CostModel>> models_;
};

// Error up to which a held-out case of kvcast's own calibrations counts as predicted.
constexpr double kOwnTolerance = 0.1;

// The kernel with the sizes that determine its time: m x n x k, or KV heads of the batch x tokens, and query heads per
// KV head.
std::string quantity_of(const graph::Work& work) {
  if (const auto* gemm = std::get_if<graph::Gemm>(&work)) {
    return fmt::format("GEMM {:.0f} x {:.0f} x {:.0f}", gemm->m, gemm->n, gemm->k);
  }
  const auto& attention = std::get<graph::DecodeAttention>(work);
  return fmt::format("decode attention, {:.0f} x {:.0f} tokens, group {:g}", attention.rows,
                     attention.tokens / attention.rows, attention.group);
}

// half_width: of what the model leaves out, in addition to the uncertainty of the costs.
Case case_of(const calibrate::MeasuredPoint& point, const hardware::Cost& cost, const config::Hardware& machine,
             double half_width) {
  Case c;
  c.id = fmt::format("line {}", point.where.line);
  c.group = point.device + "/" + point.framework;
  c.quantity = quantity_of(point.op.work);
  c.unit = "us";
  c.expected = point.seconds * kMicro;
  c.predicted = cost.alone * kMicro;
  set_interval(c, cost.uncertainty, half_width);
  c.baseline = roofline_seconds(point.op.work, machine.gpu) * kMicro;
  c.tolerance = cost.uncertainty;
  const graph::ByteCounts traffic = graph::traffic_of(point.op.work);
  c.size = traffic.hbm_read + traffic.hbm_write;
  c.origin = cost.origin;
  if (machine.fit != config::TimesOrigin::kFitted) c.note = config::fit_text(machine);
  if (cost.extrapolated) {
    c.note += std::string(c.note.empty() ? "" : "; ") + "outside the range that the profile was established for";
  }
  c.verdict = verdict_of(c, false);
  return c;
}

Suite empty_suite() {
  Suite suite;
  suite.name = "kernels";
  suite.question = "How accurately are the times of single kernels predicted?";
  suite.baseline_is = "bytes over the bandwidth, products over the peak";
  suite.size_unit = "bytes moved";
  return suite;
}

// A calibration and a machine that is based on it.
struct Calibrated {
  config::Calibration calibration;
  config::Hardware machine;
};

// Lists each calibration once, even if several profiles are based on it. The suite names the files that cannot be read.
std::vector<Calibrated> calibrations(Suite& suite) {
  std::vector<Calibrated> all;
  std::set<std::pair<std::string, std::string>> seen;
  const auto add = [&](const std::vector<config::Calibration>& list, const config::Hardware& machine) {
    for (const config::Calibration& c : list) {
      if (seen.emplace(c.points, c.kernel).second) all.push_back({c, machine});
    }
  };
  config::Hardware machine;
  for (const std::string& file : config::config_files("hardware")) {
    try {
      machine = config::read_hardware(file);
    } catch (const UserError& error) {
      Case& unread = suite.cases.emplace_back();
      unread.id = config::stem_of(file), unread.group = "profiles";
      unread.quantity = "a profile that cannot be read";
      unread.verdict = Verdict::kUnanswered, unread.note = error.what();
      continue;
    }
    add(machine.calibrations, machine);
    add(machine.host.calibrations, machine);
  }
  for (const std::string& file : config::config_files("hosts")) {  // with any GPU: it does not affect work of CPU cores
    machine.host = config::read_host(file);
    add(machine.host.calibrations, machine);
  }
  return all;
}

void add_budgets(const config::Calibration& c, const std::string& name, const std::vector<double>& errors,
                 Suite& suite) {
  const metrics::ErrorSummary s = metrics::summarise_errors(errors);
  const auto value = [&](double x) { return s.n > 0 ? std::optional<double>(100 * x) : std::nullopt; };
  suite.budgets.push_back({name + ", median error", "%", 100 * c.budget_median, value(s.median)});
  suite.budgets.push_back({name + ", p90 error", "%", 100 * c.budget_p90, value(s.p90)});
}

// Adds cases measured by kvcast's own programs.
void add_measured(const Calibrated& calibrated, Suite& suite) {
  const config::Calibration& c = calibrated.calibration;
  const std::string file = config::find_config("hardware", c.points, {});
  const std::vector<calibrate::MeasuredOp> cases = calibrate::cases_of_stage(calibrate::read_results(file), c.kernel);
  const std::vector<double> predicted = calibrate::predict(calibrated.machine, cases);
  const std::string folder = std::filesystem::path(file).parent_path().filename().string();
  const std::string machine = folder == "points" ? config::stem_of(file) : folder;
  const std::string group = fmt::format("{} {}", machine, c.kernel);
  std::vector<double> errors;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].held_out) continue;
    Case one;
    one.id = cases[i].id, one.group = group, one.quantity = cases[i].bench, one.unit = "us";
    one.expected = 1e6 * cases[i].seconds, one.predicted = 1e6 * predicted[i];
    one.tolerance = kOwnTolerance, one.origin = Origin::kFitted, one.source = c.source;
    // The interval is the p90 error of the fit on its own points.
    one.low = predicted[i] * 1e6 * (1 - std::min(1.0, c.fit.p90)), one.high = predicted[i] * 1e6 * (1 + c.fit.p90);
    if (cases[i].spread > 0) one.note = fmt::format("measured again: {:.1f} % apart", 100 * cases[i].spread);
    one.verdict = verdict_of(one, false);
    errors.push_back(relative_error(one).value());
    suite.cases.push_back(std::move(one));
  }
  add_budgets(c, group, errors, suite);
}

void add_held_out(const config::Calibration& c, Profiles& profiles, Suite& suite) {
  const std::string file = config::find_config("hardware", c.points, {});
  std::vector<double> judged;
  std::string group;
  for (const calibrate::MeasuredPoint& point : calibrate::read_points(file)) {
    if (!point.held_out) continue;
    const hardware::CostModel* model = profiles.find(point);
    if (model == nullptr) {
      throw UserError(point.where, fmt::format("no profile answers to {}/{}", point.device, point.framework));
    }
    // Kernels of the program from whose others the numbers come: their uncertainty is the error of such a prediction.
    Case one = case_of(point, model->cost(point.op), model->hardware(), 0);
    one.id = fmt::format("{}:{}", config::stem_of(file), point.where.line);
    one.group += fmt::format("{}{} {}", point.kernel.empty() ? "" : "/", point.kernel, c.kernel);
    one.source = c.source;
    group = one.group;
    const bool large = calibrate::beyond_cache(point, model->hardware().gpu.l2_capacity);
    if (large || !c.beyond_cache) judged.push_back(relative_error(one).value());
    suite.cases.push_back(std::move(one));
  }
  add_budgets(c, group + (c.beyond_cache ? ", beyond twice the L2" : ""), judged, suite);
}

}  // namespace

Suite kernels_of_profiles() {
  Suite suite = empty_suite();
  Profiles profiles;
  for (const Calibrated& one : calibrations(suite)) {
    if (one.calibration.points.ends_with(".csv")) {
      add_held_out(one.calibration, profiles, suite);
    } else {
      add_measured(one, suite);
    }
  }
  if (suite.cases.empty()) suite.status = "no profile under configs/hardware was fitted to points";
  return suite;
}

std::vector<std::string> known_sources() {
  std::set<std::string> known;
  config::Unread unread;
  for (const std::string& file : config::config_files("hardware")) {
    std::vector<std::string> aliases;
    unread.attempt([&] { return aliases = aliases_of(file), true; });
    for (const std::string& alias : aliases) {
      if (std::ranges::count(alias, '/') == 1) known.insert(alias);
    }
  }
  return {known.begin(), known.end()};
}

Suite kernels_of_points(const std::string& path) {
  Suite suite = empty_suite();
  Profiles profiles;
  Tally all;
  std::map<std::string, Tally> by_source;
  for (const calibrate::MeasuredPoint& point : calibrate::read_points(path)) {
    Tally& own = by_source[point.device + "/" + point.framework];
    const hardware::CostModel* model = profiles.find(point);
    if (model == nullptr) {
      ++all.no_profile, ++own.no_profile;
      continue;
    }
    const hardware::Cost cost = model->cost(point.op);
    const config::Hardware& machine = model->hardware();
    const Case one = case_of(point, cost, machine, config::left_out().of(machine.fit));
    for (Tally* tally : {&all, &own}) {
      tally->errors.push_back(cost.alone / point.seconds - 1);
      tally->baseline.push_back(*one.baseline / *one.expected - 1);
      tally->outside_range += cost.extrapolated ? 1 : 0;
      tally->no_fit += machine.fit == config::TimesOrigin::kFitted ? 0 : 1;
      tally->held += *one.low <= *one.expected && *one.expected <= *one.high ? 1 : 0;
    }
    suite.cases.push_back(one);
  }
  suite.detail = all.to_json();
  suite.detail["points"] = path;
  for (const auto& [source, tally] : by_source) suite.detail["by_source"][source] = tally.to_json();
  return suite;
}

}  // namespace kvcast::validate
