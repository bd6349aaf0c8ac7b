// The chart of a break-even: the metric of both variants over the key, or the parts of the key's range in which the
// targets are met.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "report/answer_charts.hpp"
#include "result/metric.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;

// Returns whether a variant does not fit; one that was not simulated at a value is null there.
bool misfits(const json& side) { return side.is_object() && !side.value("fits", false); }

std::optional<double> value_of(const json& side) {
  if (!side.is_object() || !side.contains("value")) return {};
  return side.at("value").get<double>();
}

class Curves {
 public:
  Curves(const json& data, const ChartContext& context)
      : data_(data),
        samples_(data.at("samples")),
        from_(samples_.front().at("x")),
        to_(samples_.back().at("x")),
        axis_(axis_of(data.at("key"), to_, context.machines)) {
    chart_.signals = {
        {"from", axis_.shown(from_)}, {"to", axis_.shown(to_)}, {"x_title", axis_.title}, {"x_tokens", axis_.tokens}};
    chart_.scales["x"] = scale_between(from_, to_, 2);
    add_crossings();
  }

  AnswerChart metric(const result::Metric& metric, const ChartContext& context) {
    chart_.name = "plan_break_even";
    const std::vector<std::string> labels{data_.at("of"), data_.at("against")};
    const auto colors = colors_of(labels, context);
    json series = json::array(), points = json::array(), marks = json::array();
    double least = INFINITY, most = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      series.push_back({{"series", labels[s]}, {"color", colors[s]}});
      const char* const side = s == 0 ? "of" : "against";
      for (std::size_t i = 0; i < samples_.size(); ++i) {
        const double x = axis_.shown(samples_[i].at("x"));
        json row = {{"series", labels[s]}, {"color", colors[s]}, {"order", s}, {"x", x}};
        if (misfits(samples_[i].at(side))) marks.push_back(row);
        const auto value = value_of(samples_[i].at(side));
        if (!value) continue;
        row["y"] = *value * metric.display.scale;
        row["where"] = axis_.text(samples_[i].at("x"));
        row["bottleneck"] = samples_[i].at(side).at("binding_resource");
        least = std::min(least, row["y"].get<double>()), most = std::max(most, row["y"].get<double>());
        points.push_back(std::move(row));
      }
    }
    if (points.empty()) return {};
    chart_.data["points"] = points, chart_.data["series"] = series, chart_.data["misfits"] = marks;
    chart_.signals["y_title"] = axis_title(metric.label, metric.display.unit);
    chart_.signals["y_unit"] = metric.display.unit;
    set_measure_axis(chart_, least, most);
    return chart_;
  }

  AnswerChart targets() {
    chart_.name = "plan_targets";
    json segments = json::array();
    double at = from_;
    json state =
        data_.at("crossings").empty() ? data_.at("always") : data_.at("crossings").at(0).at("below").at("better");
    const auto close = [&](double end) {
      segments.push_back({{"from", axis_.shown(at)}, {"to", axis_.shown(end)}, {"state", state}});
      at = end;
    };
    for (const json& crossing : data_.at("crossings")) {
      close(crossing.at("value"));
      state = crossing.at("above").at("better");
    }
    close(to_);
    chart_.data["parts"] = std::move(segments);
    return chart_;
  }

 private:
  void add_crossings() {
    json rows = json::array();
    for (const json& c : data_.at("crossings")) {
      const double value = c.at("value"), low = c.at("interval").at(0), high = c.at("interval").at(1);
      const std::string open =
          low < high ? fmt::format("80 %: {} to {}", axis_.text(low), axis_.text(high)) : std::string();
      rows.push_back({{"order", rows.size()},
                      {"value", axis_.shown(value)},
                      {"low", axis_.shown(low)},
                      {"high", axis_.shown(high)},
                      {"text", axis_.text(value)},
                      {"interval", open},
                      {"better", c.at("above").at("better")}});
    }
    chart_.data["crossings"] = std::move(rows);
  }

  const json& data_;
  const json& samples_;
  double from_, to_;
  KeyAxis axis_;
  AnswerChart chart_;
};

}  // namespace

AnswerChart chart_break_even(const store::Answer&, const json& data, const ChartContext& context) {
  if (data.value("samples", json::array()).empty()) return {};
  Curves curves(data, context);
  if (data.at("against").is_null()) return curves.targets();
  const result::Metric* const metric = result::find_metric(data.at("metric").get<std::string>());
  return metric == nullptr ? AnswerChart() : curves.metric(*metric, context);
}

}  // namespace kvcast::report
