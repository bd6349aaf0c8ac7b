// The charts of answers over many settings: the choice among them, and the map of the best policy over two keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "report/answer_charts.hpp"
#include "result/metric.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;

constexpr const char* kThroughput = "request.output_tokens_per_s";
constexpr const char* kMemory = "memory.hbm_peak_bytes";
constexpr const char* kNone = "none";  // shown as the best policy if none fits and meets the targets

// The policy's name, then its settings, the machine and all others; "policy.budget" is shown as "budget".
std::string label_of(const json& config) {
  std::string parts[4];
  for (const auto& [key, value] : config.items()) {
    const std::string text = value.get<std::string>();
    const bool name = key == "policy" || key == "policy.name", machine = key.starts_with("hardware");
    std::string& part = parts[name ? 0 : key.starts_with("policy.") ? 1 : machine ? 2 : 3];
    part += name                ? ", " + text
            : key == "hardware" ? ", on " + text
                                : fmt::format(", {} {}", key.substr(key.find('.') + 1), text);
  }
  const std::string label = parts[0] + parts[1] + parts[2] + parts[3];
  return label.substr(std::min<std::size_t>(2, label.size()));
}

std::string policy_of(const json& config) {
  for (const char* key : {"policy", "policy.name"}) {
    if (config.contains(key)) return config[key];
  }
  return "all settings";
}

std::string shown(const char* path, double value) {
  const result::Metric* const metric = result::find_metric(path);
  return metric == nullptr ? number_text(value) : result::format_value(*metric, value);
}

std::string machine_of(const json& config) {
  for (const char* key : {"hardware", "hardware.like"}) {
    if (config.contains(key)) return config[key];
  }
  return "";
}

json point_of(const json& entry, const std::string& best, const ChartContext& context) {
  const json &config = entry.at("config"), &metrics = entry.at("metrics");
  const std::string policy = policy_of(config);
  json point = {{"label", label_of(config)},
                {"policy", policy},
                {"color", colors_of({policy}, context).front()},
                {"machine", machine_of(config)},
                {"tps", metrics.at(kThroughput)},
                {"hbm", metrics.at(kMemory).get<double>() / 1e9},
                {"ttft", shown("request.ttft_s", metrics.at("request.ttft_s"))},
                {"latency", shown("request.latency_s", metrics.at("request.latency_s"))},
                {"best", best},
                {"tpot", shown("decode.tpot_s.mean", metrics.at("decode.tpot_s.mean"))},
                {"bottleneck", entry.at("binding_resource")}};
  if (metrics.contains("score")) point["score"] = 100 * metrics.at("score").get<double>();
  if (metrics.contains("cost_per_million_tokens")) {
    point["cost"] = number_text(metrics.at("cost_per_million_tokens"));
    point["x"] = metrics.at("cost_per_million_tokens");
  }
  if (!point.contains("x")) point["x"] = point["hbm"];
  if (entry.contains("intervals")) {
    const json& range = entry.at("intervals").at(kThroughput);
    point["tps_low"] = range[0], point["tps_high"] = range[1];
  }
  return point;
}

// The best settings and the front, each once.
json points_of(const json& data, const ChartContext& context) {
  json points = json::array();
  std::set<std::string> seen;
  const auto add = [&](const json& entry, const std::string& best) {
    if (seen.insert(entry.at("config").dump()).second) points.push_back(point_of(entry, best, context));
  };
  for (const json& entry : data.at("best")) add(entry, points.empty() ? "best" : "open");
  for (const json& entry : data.at("front")) add(entry, "");
  return points;
}

// Points that no other one beats in throughput and on the x axis; the whole front has more dimensions than a chart.
json edge_of(const json& points) {
  json edge = json::array();
  std::vector<const json*> by_x;
  for (const json& p : points) by_x.push_back(&p);
  std::ranges::stable_sort(by_x, [](const json* a, const json* b) {
    return std::pair((*a)["x"].get<double>(), -(*a)["tps"].get<double>()) <
           std::pair((*b)["x"].get<double>(), -(*b)["tps"].get<double>());
  });
  double fastest = 0;
  for (const json* p : by_x) {
    if ((*p)["tps"].get<double>() <= fastest) continue;
    fastest = (*p)["tps"];
    edge.push_back({{"x", (*p)["x"]}, {"tps", (*p)["tps"]}});
  }
  return edge;
}

std::vector<double> values_of(const json& cells, const char* name) {
  std::set<double> values;
  for (const json& cell : cells) values.insert(cell[name].get<double>());
  return {values.begin(), values.end()};
}

json shown_values(const std::vector<double>& values, const KeyAxis& axis) {
  json out = json::array();
  for (const double v : values) out.push_back(axis.shown(v));
  return out;
}

// Edges between neighbouring cells whose best policies differ.
json borders_of(const json& data, const KeyAxis& x, const KeyAxis& y) {
  json rows = json::array();
  for (const json& b : data.at("borders")) {
    const bool across = b.at("x").at(0) != b.at("x").at(1);  // the edge between two columns
    rows.push_back({{"across", across}, {"x", x.shown(b.at("x").at(1))}, {"y", y.shown(b.at("y").at(0))}});
  }
  return rows;
}

}  // namespace

AnswerChart chart_choose(const json& data, const ChartContext& context) {
  AnswerChart chart;
  json points = points_of(data, context);
  if (points.empty()) return chart;
  chart.name = "plan_choose";
  std::map<std::string, std::string> colors;
  double least = INFINITY, most = 0;
  bool scored = false, priced = true;
  std::map<std::string, std::string> machines;
  for (json& p : points) {
    priced = priced && p.contains("cost");
    const std::string machine = p["machine"];
    p["machine_color"] = machines.try_emplace(machine, context.palette.color("machines", machine)).first->second;
    colors[p["policy"]] = p["color"];
    least = std::min(least, p["tps"].get<double>()), most = std::max(most, p["tps"].get<double>());
    scored = scored || p.contains("score");
  }
  json policies = json::array();
  for (const auto& [policy, color] : colors) {
    policies.push_back({{"policy", policy}, {"color", color}, {"symbol", context.palette.symbol(policy)}});
  }
  if (!priced) {
    for (json& p : points) p["x"] = p["hbm"];
  }
  const bool several = machines.size() > 1;
  chart.signals["priced"] = priced, chart.signals["several_machines"] = several;
  json& listed = chart.data["machines"] = json::array();
  for (const auto& [machine, color] : machines) listed.push_back({{"machine", machine}, {"color", color}});
  chart.data["edge"] = edge_of(points);
  chart.data["points"] = std::move(points), chart.data["policies"] = std::move(policies);
  chart.signals["scored"] = scored;
  if (several) {
    chart.unused = {"score", "color"};
  } else {
    chart.unused =
        scored ? std::set<std::string>{"color", "machine"} : std::set<std::string>{"score", "symbol", "machine"};
  }
  set_measure_axis(chart, least, most);
  return chart;
}

AnswerChart chart_map(const json& data, const ChartContext& context) {
  AnswerChart chart;
  const json& cells = data.at("cells");
  if (cells.empty()) return chart;
  chart.name = "plan_map";
  const std::vector<double> xs = values_of(cells, "x"), ys = values_of(cells, "y");
  const KeyAxis x = axis_of(data.at("x"), xs.back(), context.machines),
                y = axis_of(data.at("y"), ys.back(), context.machines);
  std::map<std::string, int> counts;
  for (const json& cell : cells) ++counts[cell.at("best").get<std::string>()];
  std::vector<std::string> labels;
  for (const auto& [label, count] : counts) {
    if (label != kNone) labels.push_back(label);
  }
  const auto colors = colors_of(labels, context);
  std::map<std::string, std::string> color_of{{kNone, context.palette.color("signs", kNone)}};
  json series = json::array();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    color_of[labels[i]] = colors[i];
    series.push_back({{"series", labels[i]}, {"color", colors[i]}});
  }
  if (counts.contains(kNone)) series.push_back({{"series", kNone}, {"color", color_of[kNone]}});
  json rows = json::array();
  for (const json& cell : cells) {
    const std::string best = cell.at("best");
    const json& distinguished = cell.at("told_apart");  // null without a second best
    const bool has_second = best != kNone && distinguished.is_boolean();
    json row = {{"x", x.shown(cell.at("x"))},
                {"y", y.shown(cell.at("y"))},
                {"where", fmt::format("{} {}, {} {}", data.at("x").get<std::string>(), x.text(cell.at("x")),
                                      data.at("y").get<std::string>(), y.text(cell.at("y")))},
                {"best", best},
                {"color", color_of[best]},
                {"open", has_second && !distinguished.get<bool>()},
                {"simulated", cell.at("simulated")},
                {"bottleneck", cell.at("binding_resource")}};
    if (has_second) row["distinguished"] = distinguished.get<bool>() ? "yes" : "no";
    if (cell.at("times").is_number() && best != kNone) row["times"] = number_text(cell.at("times"));
    rows.push_back(std::move(row));
  }
  chart.data["places"] = std::move(rows), chart.data["series"] = std::move(series);
  chart.data["edges"] = borders_of(data, x, y);
  chart.signals = {{"xs", shown_values(xs, x)}, {"ys", shown_values(ys, y)}, {"x_title", x.title},
                   {"y_title", y.title},        {"x_tokens", x.tokens},      {"y_tokens", y.tokens}};
  return chart;
}

}  // namespace kvcast::report
