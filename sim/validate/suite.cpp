#include "validate/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/units.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

constexpr int kVerdicts = 6;
// A value exactly at its tolerance is within it, whatever the last bit.
constexpr double kRounding = 1e-9;

json number(const std::optional<double>& value) { return value && std::isfinite(*value) ? json(*value) : json(); }

json case_json(const Case& c, const std::string& expected_is) {
  json out = {{"id", c.id},
              {"group", c.group},
              {"quantity", c.quantity},
              {"unit", c.unit},
              {"predicted", number(c.predicted)},
              {"low", number(c.low)},
              {"high", number(c.high)},
              {"cost_low", number(c.cost_low)},
              {"cost_high", number(c.cost_high)},
              {"error", number(relative_error(c))},
              {"baseline", number(c.baseline)},
              {"tolerance", c.tolerance},
              {"size", number(c.size)},
              {"origin", c.origin ? json(origin_name(*c.origin)) : json()},
              {"verdict", verdict_name(c.verdict)},
              {"depends_on", c.depends_on},
              {"note", c.note},
              {"source", c.source},
              {"held_out", c.held_out},
              {"chosen_knowing", c.chosen_knowing},
              {"repeated", c.repeated}};
  out[expected_is] = number(c.expected);
  return out;
}

json budget_json(const SuiteLimit& b) {
  return {{"name", b.name},           {"unit", b.unit},         {"limit", b.limit},
          {"value", number(b.value)}, {"at_least", b.at_least}, {"passed", b.passed()}};
}

json coverage_json(const Coverage& c) {
  return {{"n", c.n}, {"covered", c.covered}, {"median_width", number(c.median_width)}};
}

json summary_json(const GroupSummary& s) {
  json verdicts = json::object();
  for (int v = 0; v < kVerdicts; ++v) {
    verdicts[std::string(verdict_name(static_cast<Verdict>(v)))] = s.verdicts[static_cast<std::size_t>(v)];
  }
  const json baseline = {{"n", s.baseline.n}, {"median", s.baseline.median}, {"p90", s.baseline.p90}};
  const json times = {{"n", s.times.n}, {"median", s.times.median}, {"p90", s.times.p90}, {"bias", s.times.bias}};
  return {{"group", s.group},
          {"times", times},
          {"baseline", baseline},
          {"n", s.errors.n},
          {"median", s.errors.median},
          {"p90", s.errors.p90},
          {"max", s.errors.max},
          {"bias", s.errors.bias},
          {"verdicts", verdicts},
          {"intervals",
           {{"costs", coverage_json(s.intervals.costs)},
            {"bounds", coverage_json(s.intervals.bounds)},
            {"exact", s.intervals.exact},
            {"equal", s.intervals.equal}}}};
}

// Half a unit of the last digit with which a number is written: 0.05 for 13.7, 0.5 for 400.
double rounding_of(double value) {
  const std::string text = fmt::format("{}", value);
  const std::size_t exponent = text.find('e'), point = text.find('.');
  const std::size_t end = std::min(exponent, text.size());
  double digits = point == std::string::npos || point > end ? 0 : static_cast<double>(end - point - 1);
  if (point != std::string::npos && text.substr(point, end - point) == ".0") digits = 0;
  if (exponent != std::string::npos) digits -= std::stod(text.substr(exponent + 1));
  return 0.5 * std::pow(10.0, -digits);
}

constexpr double kPoint = 1e-6;  // bounds closer than this, relative to the upper one, are one number

class Intervals {
 public:
  void add(const Case& c) {
    if (!c.held_out || !c.expected || !c.predicted || !c.low || !c.high) return;
    const bool alone = c.cost_low && c.cost_high;
    count(*c.expected, *c.low, *c.high, summary_.bounds, bound_widths_);
    count(*c.expected, alone ? *c.cost_low : *c.low, alone ? *c.cost_high : *c.high, summary_.costs, cost_widths_);
    if (apart(*c.low, *c.high)) return;
    ++summary_.exact;
    summary_.equal += holds(*c.expected, *c.low, *c.high) ? 1 : 0;
  }

  IntervalSummary summary() {
    if (!cost_widths_.empty()) summary_.costs.median_width = quantile(cost_widths_, 0.5);
    if (!bound_widths_.empty()) summary_.bounds.median_width = quantile(bound_widths_, 0.5);
    return summary_;
  }

 private:
  static bool apart(double low, double high) { return high - low > kPoint * std::abs(high); }

  static bool holds(double expected, double low, double high) {
    const double slack = rounding_of(expected) * (1 + kRounding);
    return low - slack <= expected && expected <= high + slack;
  }

  static void count(double expected, double low, double high, Coverage& coverage, std::vector<double>& widths) {
    if (!apart(low, high)) return;
    ++coverage.n;
    coverage.covered += holds(expected, low, high) ? 1 : 0;
    widths.push_back(low > 0 ? high / low : std::numeric_limits<double>::infinity());
  }

  IntervalSummary summary_;
  std::vector<double> cost_widths_, bound_widths_;
};

std::string short_number(const std::optional<double>& value, const std::string& unit = "") {
  return value ? fmt::format("{:.4g}{}{}", *value, unit.empty() ? "" : " ", unit) : std::string("-");
}

constexpr int kMostLines = 400;  // most cases of a group that a terminal lists

std::string interval_lines(const IntervalSummary& s, const std::string& expected_is) {
  std::string text;
  const auto line = [&](const char* what, const Coverage& c) {
    if (c.n == 0) return;
    text += fmt::format("    {}: {} of {} hold the {} number, high over low {:.2f} in the median\n", what, c.covered,
                        c.n, expected_is, c.median_width);
  };
  const bool readings = s.bounds.n != s.costs.n || s.bounds.median_width != s.costs.median_width;
  line(readings ? "intervals of one reading" : "intervals", s.costs);
  if (readings) line("with all readings", s.bounds);
  if (s.exact > 0) text += fmt::format("    without interval: {} of {} equal in all digits given\n", s.equal, s.exact);
  return text;
}

std::string line_of(const Case& c) {
  const auto error = relative_error(c);
  const std::string range = c.low && c.high ? fmt::format("{:.3g}..{:.3g}", *c.low, *c.high) : "";
  std::string line = fmt::format("{:<16} {:>9} {:>9} {:<15} {:>8}  {:<10}  {}{}{}\n", c.id, short_number(c.expected),
                                 short_number(c.predicted), range, error ? format_change(100 * *error, 1) + " %" : "",
                                 verdict_name(c.verdict), c.quantity, c.unit.empty() ? "" : ", ", c.unit);
  if (!c.note.empty()) line += fmt::format("{:<16} {}\n", "", c.note);
  return line;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"agrees", "bracketed", "fitted", "off", "unanswered", "unmeasured"};
  static_assert(std::size(kNames) == kVerdicts);
  return kNames[static_cast<int>(verdict)];
}

std::optional<double> relative_error(const Case& c) {
  if (!c.expected || !c.predicted || *c.expected == 0) return {};
  return *c.predicted / *c.expected - 1;
}

bool is_telling(const Case& c) {
  constexpr double kWidest = 4;
  return c.low && c.high && *c.low > 0 && *c.high <= kWidest * *c.low;
}

Verdict verdict_of(const Case& c, bool readings) {
  if (!c.predicted) return Verdict::kUnanswered;
  if (!c.expected) return Verdict::kUnmeasured;
  const double slack = (c.tolerance + kRounding) * std::abs(*c.expected);
  if (std::abs(*c.predicted - *c.expected) <= slack) return c.held_out ? Verdict::kAgrees : Verdict::kFitted;
  const bool spanned = c.low && c.high && *c.low - slack <= *c.expected && *c.expected <= *c.high + slack;
  if (!readings || !spanned) return Verdict::kOff;
  return is_telling(c) ? Verdict::kBracketed : Verdict::kUnanswered;
}

void judge(Case& c, bool chosen_from) {
  c.chosen_knowing = chosen_from, c.held_out = !chosen_from;
  c.verdict = verdict_of(c, false);
}

bool Suite::passed() const {
  const auto has_value = [](const SuiteLimit& b) { return b.value.has_value(); };
  const bool lost = status.empty() && !budgets.empty() && std::ranges::none_of(budgets, has_value);
  return !lost && std::ranges::all_of(budgets, [](const SuiteLimit& b) { return b.passed(); });
}

std::vector<GroupSummary> summarise(const Suite& suite) {
  std::vector<std::string> groups = {""};
  for (const Case& c : suite.cases) {
    if (std::ranges::find(groups, c.group) == groups.end()) groups.push_back(c.group);
  }
  std::vector<GroupSummary> out;
  for (const std::string& group : groups) {
    GroupSummary summary{group, {}, {}, {}, {}, {}, std::vector<int>(kVerdicts, 0)};
    std::vector<double> errors, times, baseline, with_baseline;
    Intervals intervals;
    for (const Case& c : suite.cases) {
      if (!group.empty() && c.group != group) continue;
      ++summary.verdicts[static_cast<std::size_t>(c.verdict)];
      const auto error = relative_error(c);
      if (error && c.held_out) errors.push_back(*error);
      if (error && c.held_out && c.origin && *c.origin != Origin::kExact) times.push_back(*error);
      if (error && c.held_out && c.baseline) {
        baseline.push_back(*c.baseline / *c.expected - 1);
        with_baseline.push_back(*error);
      }
      intervals.add(c);
    }
    summary.intervals = intervals.summary();
    summary.errors = metrics::summarise_errors(errors);
    summary.times = metrics::summarise_errors(times);
    summary.baseline = metrics::summarise_errors(baseline);
    summary.with_baseline = metrics::summarise_errors(with_baseline);
    out.push_back(std::move(summary));
  }
  return out;
}

Headline headline(const Suite& suite) {
  std::vector<double> errors;
  Intervals intervals;
  for (const Case& c : suite.cases) {
    const auto error = relative_error(c);
    const bool time = c.origin && *c.origin != Origin::kExact;
    if (!error || !time || !c.held_out || c.chosen_knowing || c.repeated) continue;
    errors.push_back(*error);
    intervals.add(c);
  }
  return {metrics::summarise_errors(errors), intervals.summary().costs};
}

json to_json(const Suite& suite) {
  json out = {{"name", suite.name},
              {"question", suite.question},
              {"status", suite.status},
              {"passed", suite.passed()},
              {"expected_is", suite.expected_is},
              {"baseline_is", suite.baseline_is},
              {"size_unit", suite.size_unit},
              {"cases", json::array()},
              {"budgets", json::array()},
              {"summary", json::array()},
              {"detail", suite.detail}};
  for (const Case& c : suite.cases) out["cases"].push_back(case_json(c, suite.expected_is));
  for (const SuiteLimit& b : suite.budgets) out["budgets"].push_back(budget_json(b));
  for (const GroupSummary& s : summarise(suite)) out["summary"].push_back(summary_json(s));
  const Headline blind = headline(suite);
  out["blind_times"] = {{"n", blind.errors.n},
                        {"median", blind.errors.median},
                        {"p90", blind.errors.p90},
                        {"bias", blind.errors.bias},
                        {"intervals", coverage_json(blind.intervals)}};
  return out;
}

json to_json(const std::vector<Suite>& suites) {
  json out = {{"suites", json::array()}, {"passed", true}};
  for (const Suite& suite : suites) {
    out["suites"].push_back(to_json(suite));
    out["passed"] = out["passed"].get<bool>() && suite.passed();
  }
  return out;
}

std::string to_text(const Suite& suite) {
  std::string text = fmt::format("{}: {}\n", suite.name, suite.question);
  if (!suite.status.empty()) text += fmt::format("  {}\n", suite.status);
  std::map<std::string, int> sizes;
  for (const Case& c : suite.cases) ++sizes[c.group];
  const auto listed = [&](const Case& c) { return sizes.at(c.group) <= kMostLines; };
  const auto left_out = suite.cases.size() - static_cast<std::size_t>(std::ranges::count_if(suite.cases, listed));
  if (left_out > 0) text += fmt::format("\n{} cases are not listed here; --json lists them\n", left_out);
  if (left_out < suite.cases.size()) {
    text += fmt::format("\n{:<16} {:>9} {:>9} {:<15} {:>8}  {:<10}  {}\n", "id", suite.expected_is, "predicted",
                        "between", "error", "verdict", "quantity");
  }
  for (const Case& c : suite.cases) text += listed(c) ? line_of(c) : "";
  for (const GroupSummary& s : summarise(suite)) {
    if (s.errors.n == 0) continue;
    text += fmt::format("{} {}: {} held-out numbers, error median {:.1f} %, p90 {:.1f} %, max {:.1f} %, bias {} %\n",
                        s.group.empty() ? "\nerrors" : " ", s.group.empty() ? "over all" : s.group, s.errors.n,
                        100 * s.errors.median, 100 * s.errors.p90, 100 * s.errors.max,
                        format_change(100 * s.errors.bias, 1));
    if (s.times.n > 0 && s.times.n < s.errors.n) {
      text += fmt::format("    of these {} are based on times: error median {:.1f} %, p90 {:.1f} %, bias {} %\n",
                          s.times.n, 100 * s.times.median, 100 * s.times.p90, format_change(100 * s.times.bias, 1));
    }
    if (s.baseline.n > 0) {
      text += fmt::format(
          "    {} {} without a model ({}): error median {:.1f} %, p90 {:.1f} %; predicted {:.1f} and {:.1f} %\n",
          s.baseline.n, s.baseline.n == 1 ? "number" : "numbers", suite.baseline_is, 100 * s.baseline.median,
          100 * s.baseline.p90, 100 * s.with_baseline.median, 100 * s.with_baseline.p90);
    }
    text += interval_lines(s.intervals, suite.expected_is);
  }
  if (const Headline blind = headline(suite); blind.errors.n > 0) {
    text += fmt::format(
        "times read blind, each once: {} numbers, error median {:.1f} %, p90 {:.1f} %, bias {} %; {} of {} intervals "
        "hold theirs\n",
        blind.errors.n, 100 * blind.errors.median, 100 * blind.errors.p90, format_change(100 * blind.errors.bias, 1),
        blind.intervals.covered, blind.intervals.n);
  }
  for (const SuiteLimit& b : suite.budgets) {
    const char* outcome = !b.value ? "no data" : b.passed() ? "met" : "MISSED";
    text += fmt::format("budget {}: {}, {} {} allowed: {}\n", b.name, short_number(b.value, b.unit),
                        b.at_least ? "at least" : "at most", short_number(b.limit), outcome);
  }
  return text;
}

std::string predictions_text(const Suite& suite, const std::string& profile) {
  if (profile.empty()) throw UserError(suite.name + ": --first needs --from and --profile, one machine's");
  const auto number = [](std::optional<double> x) { return x ? fmt::format("{:.6g}", *x) : std::string(); };
  std::string text = "profile,id,unit,predicted,low,high\n";
  for (const Case& c : suite.cases) {
    text +=
        fmt::format("{},{},{},{},{},{}\n", profile, c.id, c.unit, number(c.predicted), number(c.low), number(c.high));
  }
  return text;
}

}  // namespace kvcast::validate
