// The chart of a break-even: the metric of both variants over the key, or the parts of the key's range in which the
// targets are met.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/chart.hpp"

namespace kvcast::plan {
namespace {

using nlohmann::json;

// Values of the metric, and where a variant does not fit; one that was not simulated at a value is null there.
void draw_curves(const json& data, const KeyAxis& axis, Chart& chart) {
  const result::Metric& metric = metric_of(data);
  double least = INFINITY, most = 0;
  chart.data["misfits"] = json::array();
  for (const char* const side : {"of", "against"}) {
    const std::string label = data.at(side), color = "variants/" + label;
    chart.data["series"].push_back({{"series", label}, {"color", color}});
    for (const json& sample : data.at("samples")) {
      const json& at = sample.at(side);
      if (at.is_null()) continue;
      json row = {{"series", label},
                  {"color", color},
                  {"order", chart.variants.size()},
                  {"x", axis.shown(sample.at("x"))},
                  {"where", axis.text(sample.at("x"))},
                  {"bottleneck", at.at("binding_resource")}};
      if (!at.at("fits").get<bool>()) chart.data["misfits"].push_back(row);
      if (!at.contains("value")) continue;
      const double y = at.at("value").get<double>() * metric.display.scale;
      least = std::min(least, y), most = std::max(most, y);
      row["y"] = y;
      chart.data["points"].push_back(std::move(row));
    }
    chart.variants.push_back(label);
  }
  if (most == 0) chart.spec.clear();
  chart.signals["y_title"] = axis_title(metric, metric.display.unit), chart.signals["y_unit"] = metric.display.unit;
  chart.set_measure_axis(least, most);
}

void draw_targets(const json& data, const KeyAxis& axis, Chart& chart) {
  const json &crossings = data.at("crossings"), &samples = data.at("samples");
  json from = samples.front().at("x");
  json state = crossings.empty() ? data.at("always") : crossings.front().at("below").at("better");
  const auto close = [&](const json& end) {
    chart.data["parts"].push_back({{"from", axis.shown(from)}, {"to", axis.shown(end)}, {"state", state}});
    from = end;
  };
  for (const json& crossing : crossings) {
    close(crossing.at("value"));
    state = crossing.at("above").at("better");
  }
  close(samples.back().at("x"));
}

}  // namespace

Chart draw_break_even(const json& data, const Machines& machines) {
  const json& samples = data.at("samples");
  if (samples.empty()) return {};
  const double from = samples.front().at("x"), to = samples.back().at("x");
  const bool curves = data.at("against").is_string();
  const KeyAxis axis = axis_of(data.at("key"), to, machines);
  Chart chart = axis.chart(curves ? "plan_break_even" : "plan_targets", from, to);
  json& rows = chart.data["crossings"] = json::array();
  for (const json& c : data.at("crossings")) {
    const double low = c.at("interval").at(0), high = c.at("interval").at(1);
    json row = axis.mark(c.at("value"), low, high);
    row["order"] = rows.size(), row["better"] = c.at("above").at("better");
    row["interval"] = low < high ? fmt::format("80 %: {} to {}", axis.text(low), axis.text(high)) : "";
    rows.push_back(std::move(row));
  }
  (curves ? draw_curves : draw_targets)(data, axis, chart);
  return chart;
}

}  // namespace kvcast::plan
