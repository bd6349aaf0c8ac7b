#include "report/answer_charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "result/metric.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;

constexpr std::size_t kMostParts = 8;  // separate bars of a waterfall
constexpr double kSmallPart = 0.01;    // share of the longer time: smaller parts are combined
constexpr double kSmallSpread = .1;    // share of the longer time: bars from 0 would hide smaller differences
constexpr double kNoSpread = 1e-3;     // share of the longer time: nothing to enlarge
constexpr std::size_t kMostBars = 15;  // bars of sensitivities

std::string signed_text(double value) {
  return fmt::format("{}{}", value < 0 ? "−" : "+", number_text(std::abs(value)));
}

// A unit of time in which the value has one to three digits before the point.
std::pair<double, const char*> time_unit(double seconds) {
  if (seconds >= 1) return {1, "s"};
  return seconds >= 1e-3 ? std::pair(1e3, "ms") : std::pair(1e6, "µs");
}

std::optional<double> number_at(const json& map, const char* key) {
  const auto found = map.find(key);
  if (found == map.end() || !found->is_number()) return {};
  return found->get<double>();
}

}  // namespace

std::vector<std::string> colors_of(const std::vector<std::string>& labels, const ChartContext& context) {
  std::vector<std::string> colors;
  std::map<std::string, std::size_t> variants;  // variants of each policy so far
  for (const std::string& label : labels) {
    const std::string first = label.substr(0, label.find(','));
    const std::string name = context.policies.contains(first) ? first : label;
    colors.push_back(context.palette.variant_color(name, variants[name]++));
  }
  return colors;
}

void set_measure_axis(AnswerChart& chart, double least, double most) {
  constexpr double kFarApart = 8;  // ratio of the largest to the smallest value
  if (most <= kFarApart * least) {
    chart.scales["y"] = {{"type", "linear"}, {"zero", true}, {"nice", true}};
    return;
  }
  chart.scales["y"] = {{"type", "log"}, {"base", 10}, {"padding", 8}};
  chart.signals["y_values"] = log_ticks(least, most);
}

std::string axis_title(const std::string& label, const std::string& unit) {
  std::string title = label;
  const bool word = title.size() > 1 && std::islower(static_cast<unsigned char>(title[1])) != 0;
  if (word) title[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(title[0])));
  return unit.empty() ? title : title + ", " + unit;
}

AnswerChart chart_why(const json& data, const ChartContext& context) {
  AnswerChart chart;
  if (data.at("parts").empty()) return chart;
  chart.name = "plan_why";
  const double of = data.at("seconds").at("of"), against = data.at("seconds").at("against"),
               longer = std::max(of, against);
  const auto [scale, unit] = time_unit(longer);
  const auto colors = colors_of({data.at("against"), data.at("of")}, context);
  json steps = json::array();
  const auto add = [&, scale = scale, unit = unit](const std::string& label, const std::string& under,
                                                   const std::string& kind, double from, double to,
                                                   const std::string& color) {
    const double length = scale * (to - from);
    steps.push_back({{"row", steps.size()},
                     {"label", label},
                     {"under", under},
                     {"kind", kind},
                     {"from", scale * from},
                     {"to", scale * to},
                     {"color", color},
                     {"text", (kind == "total" ? number_text(length) : signed_text(length)) + " " + unit}});
  };
  // Shows a variant's name, and under it the rest of its label.
  const auto add_total = [&](const char* side, double seconds, const std::string& color) {
    const std::string label = data.at(side);
    const std::size_t comma = std::min(label.find(", "), label.size());
    add(label.substr(0, comma),
        comma < label.size() ? label.substr(comma + 2)
                             : "bottleneck " + data.at("binding_resource").at(side).get<std::string>(),
        "total", 0, seconds, color);
  };
  const auto sign_color = [&](double s) { return context.palette.color("signs", s > 0 ? "more" : "less"); };
  add_total("against", against, colors[0]);
  double at = against, least = std::min(of, against), most = longer;
  std::size_t shown = 0;
  for (const json& part : data.at("parts")) {
    const double s = part.at("seconds");
    if (shown == kMostParts || std::abs(s) < kSmallPart * std::max(std::abs(of - against), kSmallPart * longer)) break;
    add(part.at("kind"), part.at("resource"), "part", at, at + s, sign_color(s));
    at += s, ++shown;
    least = std::min(least, at), most = std::max(most, at);
  }
  if (shown < data.at("parts").size()) {
    add("all others", fmt::format("{} parts", data.at("parts").size() - shown), "part", at, of, sign_color(of - at));
  }
  add_total("of", of, colors[1]);
  const bool cut = most - least < kSmallSpread * longer && most - least > kNoSpread * longer;
  chart.data["steps"] = std::move(steps);
  chart.signals = {{"x_min", cut ? scale * std::max(0.0, least - (most - least)) : 0},
                   {"x_max", scale * most},
                   {"x_title", fmt::format("time, {}{}", unit, cut ? " (the axis does not start at 0)" : "")}};
  return chart;
}

AnswerChart chart_sensitivities(const json& data) {
  AnswerChart chart;
  json bars = json::array();
  for (const json& s : data.at("sensitivities")) {
    const double elasticity = s.at("elasticity");
    if (bars.size() == kMostBars || elasticity == 0) break;  // the largest come first
    bars.push_back(
        {{"row", bars.size()}, {"key", s.at("key")}, {"elasticity", elasticity}, {"text", signed_text(elasticity)}});
  }
  if (bars.empty()) return chart;
  chart.name = "plan_sensitivities";
  chart.data["elasticities"] = std::move(bars);
  const result::Metric* const metric = result::find_metric(data.at("metric").get<std::string>());
  const std::string label = metric == nullptr ? data.at("metric").get<std::string>() : axis_title(metric->label, "");
  chart.signals["x_title"] = fmt::format("elasticity of {}, % per %", label);
  return chart;
}

AnswerChart chart_changes(const json& data, const ChartContext& context) {
  AnswerChart chart;
  json rows = json::array();
  double least = 1, most = 1;
  for (const json& change : data.at("changes")) {  // the largest come first
    if (rows.size() == kMostBars) break;
    if (change.at("times").is_null() || change.at("times") <= 0) continue;  // change from or to nothing
    const double times = change.at("times"), low = change.at("interval").at(0), high = change.at("interval").at(1);
    const bool better = change.at("better"), beyond = change.at("beyond");
    least = std::min({least, low, times}), most = std::max({most, high, times});
    rows.push_back(
        {{"row", rows.size()},
         {"setting", change.at("setting")},
         {"times", times},
         {"low", low},
         {"high", high},
         {"beyond", beyond},
         {"color", context.palette.color("signs", better ? "less" : "more")},
         {"text", std::abs(times - 1) < 0.05 ? fmt::format("{:+.2g} %", 100 * (times - 1)) : number_text(times)},
         {"change", std::string(better ? "better" : "worse") + (beyond ? "" : ", within its interval")}});
  }
  if (rows.empty()) return chart;
  chart.name = "plan_changes";
  chart.data["changes"] = std::move(rows);
  const result::Metric* const metric = result::find_metric(data.at("metric").get<std::string>());
  constexpr double kFarApart = 4;  // a logarithmic axis over a smaller ratio has few ticks
  chart.scales["x"] = {{"type", most > kFarApart * least ? "log" : "linear"}, {"zero", false}, {"nice", false}};
  chart.signals = {{"least", least},
                   {"most", most},
                   {"x_title", fmt::format("{}, {} / {}", axis_title(metric->label, ""),
                                           data.at("after").get<std::string>(), data.at("before").get<std::string>())}};
  return chart;
}

AnswerChart chart_largest(const json& data, const ChartContext& context) {
  AnswerChart chart;
  const auto value = number_at(data, "value");
  if (!value) return chart;
  chart.name = "plan_largest";
  const json interval = data.value("interval", json::array({nullptr, nullptr}));
  const double high = interval[1].is_number() ? interval[1].get<double>() : *value;
  // A store of an earlier version does not contain the range of the search.
  const bool ranged = data.contains("range");
  const double from = ranged ? data.at("range").at(0).get<double>() : 0;
  const double to = ranged ? data.at("range").at(1).get<double>() : 1.25 * high;
  // Null at the worse end: the interval reaches below the range.
  const double low = interval[0].is_number() ? interval[0].get<double>() : from;
  const KeyAxis axis = axis_of(data.at("key"), to, context.machines);
  const bool limited = data.at("limited_by").is_string();
  const std::string limit = limited ? data.at("limited_by").get<std::string>() : "the end of the range";
  chart.data["values"] = json::array({{{"value", axis.shown(*value)},
                                       {"low", axis.shown(low)},
                                       {"high", axis.shown(high)},
                                       {"text", axis.text(*value)},
                                       {"interval", axis.text(low) + " to " + axis.text(high)},
                                       {"limit", limit == "hbm"    ? "GPU memory"
                                                 : limit == "dram" ? "pinned host memory"
                                                                   : limit}}});
  chart.signals = {{"from", axis.shown(from)},
                   {"to", axis.shown(to)},
                   {"x_title", axis.title},
                   {"x_tokens", axis.tokens},
                   {"ranged", ranged}};
  chart.scales["x"] = scale_between(from, to, 2);
  return chart;
}

AnswerChart chart_of(const store::Answer& answer, const json& data, const ChartContext& context) {
  using enum store::AnswerKind;
  switch (answer.kind) {
    case kBreakEven:
      return chart_break_even(answer, data, context);
    case kWhy:
      return chart_why(data, context);
    case kChanges:
      return chart_changes(data, context);
    case kSensitivities:
      return chart_sensitivities(data);
    case kChoose:
      return chart_choose(data, context);
    case kMap:
      return chart_map(data, context);
    case kLargest:
      return chart_largest(data, context);
    case kCompared:
      break;
  }
  return {};
}

}  // namespace kvcast::report
