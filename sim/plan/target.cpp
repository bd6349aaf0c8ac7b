#include "plan/target.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/units.hpp"
#include "config/section.hpp"
#include "config/text.hpp"

namespace kvcast::plan {
namespace {

using result::Metric;
using result::Unit;

constexpr const char* kStableQueue = "serving.state = stable";

Dimension dimension_of(Unit unit) {
  switch (unit) {
    case Unit::kSeconds:
      return Dimension::kSeconds;
    case Unit::kBytes:
      return Dimension::kBytes;
    case Unit::kShare:
      return Dimension::kFraction;
    default:
      return Dimension::kNone;
  }
}

std::string_view example_of(Unit unit) {
  switch (unit) {
    case Unit::kSeconds:
      return "50 ms";
    case Unit::kBytes:
      return "40 GB";
    case Unit::kShare:
      return "95 %";
    default:
      return "100";
  }
}

Target read_target(const Metric& metric, const config::Node& node) {
  const std::string text = config::read_text(node, "targets");
  Target target;
  target.metric = &metric;
  const std::size_t end = text.find_first_not_of("<>=");
  const std::string relation = text.substr(0, end);
  if (end == std::string::npos || (relation != "<=" && relation != ">=" && relation != "<" && relation != ">")) {
    throw UserError(node.where(),
                    fmt::format("targets: {}: expected a relation and a value such as \"<= 50 ms\", found \"{}\"",
                                metric.path, text),
                    {"<=", ">=", "<", ">"});
  }
  target.at_most = relation[0] == '<', target.strict = relation.size() == 1;
  std::string value = text.substr(std::min(text.find_first_not_of(' ', end), text.size()));
  // Rates and counts may be written with or without their unit.
  const std::string unit = fmt::format(" {}", result::unit_name(metric.unit));
  if (dimension_of(metric.unit) == Dimension::kNone && value.ends_with(unit)) value.resize(value.size() - unit.size());
  const auto limit = parse_quantity(value, dimension_of(metric.unit));
  if (!limit) {
    throw UserError(node.where(), fmt::format("targets: {}: \"{}\" is not a quantity in {}, such as {}", metric.path,
                                              value, result::unit_name(metric.unit), example_of(metric.unit)));
  }
  if (metric.unit == Unit::kShare && *limit > 1 && !value.ends_with('%')) {
    throw UserError(node.where(), fmt::format("targets: {}: {} has no unit: write {} % or {:g} %", metric.path, value,
                                              value, 100 * *limit));
  }
  target.limit = *limit, target.where = node.where();
  return target;
}

double read_as(const result::Result& result, const Target& target, double value, Certainty reading) {
  if (reading == Certainty::kNominal) return value;
  const auto range = result::interval(result, *target.metric);
  if (!range) return value;
  return (reading == Certainty::kCertain) == target.at_most ? range->high : range->low;
}

std::string explain_missing(const result::Result& result, const Metric& metric) {
  using enum result::Basis;
  if (metric.unit == Unit::kMoney) return "no price is stated: set `price_per_hour`";
  if (metric.basis == kBenchmark && !result.benchmark_refused.empty()) return result.benchmark_refused;
  if (metric.basis == kBenchmark) return "the run says `score: none`: name a benchmark, such as `score: ruler`";
  if (metric.basis == kTaskScore) {
    return "either the trace has no task, or the score of this policy on it is not predicted: set `trace` to a recipe "
           "with a task, such as needle, or compare `score`";
  }
  if (metric.basis == kBuildTime || metric.basis == kBuildPart) return "plans do not build an index by itself";
  return "its policy does not compute it: set `policy` to one that does";
}

// At this load the queue keeps growing: all numbers of the service are those of the requests that were drawn. With
// better costs it may not grow, if the service then keeps up with the arrivals.
bool queue_grows(const result::Result& result, Certainty reading) {
  const result::Subject& subject = result.subject;
  const auto rate = subject.number("traffic.rate");
  if (!rate && !subject.number("traffic.speedup")) return false;  // all at once, or as many as can be answered
  if (!result.service || result.service->summary.state != serving::Trend::kSaturated) return false;
  if (reading != Certainty::kPossible || !rate) return true;
  const auto served = result::interval(result, *result::find_metric("serving.requests_per_s"));
  return !served || served->high < *rate;
}

}  // namespace

bool Target::holds_for(double value) const {
  if (at_most) return strict ? value < limit : value <= limit;
  return strict ? value > limit : value >= limit;
}

const Metric& metric_named(const std::string& name, const SourceLocation& where) {
  if (const Metric* const metric = result::find_metric(name)) return *metric;
  using enum result::Basis;
  std::vector<std::string> known, close;
  for (const Metric& m : result::all_metrics()) {
    close.push_back(m.path);
    if (!m.alias.empty()) close.push_back(m.alias);
    if (m.basis != kPrefillPart && m.basis != kBuildPart && m.basis != kStepPart && m.basis != kProgram) {
      known.push_back(m.path);
    }
  }
  throw UserError(where, fmt::format("unknown metric \"{}\"{}", name, config::did_you_mean(name, close)), known);
}

std::string target_pattern(const Metric& metric) {
  const Dimension dimension = dimension_of(metric.unit);
  const std::string unit = fmt::format("( {})?", result::unit_name(metric.unit));
  if (metric.unit == Unit::kShare) {  // without a unit only up to 1
    return fmt::format("^(<=|>=|<|>) *({} *%|(0(\\.[0-9]+)?|1(\\.0+)?)([eE]-[0-9]+)?)$",
                       quantity_pattern(Dimension::kNone));
  }
  return fmt::format("^(<=|>=|<|>) *{}{}$", quantity_pattern(dimension), dimension == Dimension::kNone ? unit : "");
}

std::vector<Target> read_targets(const config::Node& map) {
  if (map.kind() != config::Node::Kind::kMap || map.entries().empty()) {
    throw UserError(map.where(), "targets: expected a map of metrics to limits, found " + config::describe(map));
  }
  std::vector<Target> targets;
  for (const auto& [name, value] : map.entries()) {
    targets.push_back(read_target(metric_named(name, map.key_where(name)), value));
  }
  return targets;
}

std::string target_text(const Target& target) {
  return fmt::format("{} {}{} {}", target.metric->path, target.at_most ? "<" : ">", target.strict ? "" : "=",
                     result::format_value(*target.metric, target.limit));
}

std::string target_text(const std::vector<Target>& targets) {
  std::vector<std::string> texts;
  for (const Target& target : targets) texts.push_back(target_text(target));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::optional<std::string> missed(const result::Result& result, const std::vector<Target>& targets, Certainty reading) {
  if (result.status == result::Status::kFailed) return "refused: " + result.error;
  if (result.experiment.oom) return result.experiment.oom->pool;
  for (const Target& target : targets) {
    const auto value = result::value(result, *target.metric);
    if (!value) {
      return fmt::format("no {}: {}", is_of_score(target) ? "predicted score" : target.metric->path,
                         explain_missing(result, *target.metric));
    }
    if (target.metric->basis == result::Basis::kServing && queue_grows(result, reading)) return kStableQueue;
    if (!target.holds_for(read_as(result, target, *value, reading))) return target_text(target);
  }
  return {};
}

std::optional<std::string> why_missing(const result::Result& result, const Metric& metric) {
  if (!result.has_times() || result::value(result, metric)) return {};
  return explain_missing(result, metric);
}

void require_number(const result::Result& result, const Metric& metric, const std::string& whose,
                    const SourceLocation& where) {
  const auto missing = why_missing(result, metric);
  if (missing) throw UserError(where, fmt::format("{}: {} has none: {}", metric.path, whose, *missing));
}

void require_numbers(const result::Result& result, const std::vector<Target>& targets, const std::string& whose) {
  for (const Target& target : targets) {
    const bool unpredicted = is_of_score(target) && !result.benchmark_refused.empty();
    if (!unpredicted) require_number(result, *target.metric, whose, target.where);
  }
}

std::string memory_name(const std::string& missed) {
  return missed == "hbm" ? "GPU memory" : missed == "dram" ? "pinned host memory" : "";
}

double margin(const result::Result& result, const std::vector<Target>& targets, Certainty reading) {
  if (result.status != result::Status::kOk || result.experiment.oom) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Target& target : targets) {
    const auto value = result::value(result, *target.metric);
    if (!value) return 0;
    const double kept = read_as(result, target, *value, reading);
    const double more = target.at_most ? target.limit : kept, less = target.at_most ? kept : target.limit;
    if (less > 0)
      least = std::min(least, std::max(0.0, more) / less);
    else if (!target.holds_for(kept))
      return 0;
  }
  return least;
}

}  // namespace kvcast::plan
