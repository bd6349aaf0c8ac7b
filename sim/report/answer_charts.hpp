// The charts of a plan's answers: from an answer's JSON to the rows, signals and scales of a Vega specification under
// reports/charts.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "report/key_axis.hpp"
#include "report/palette.hpp"
#include "store/finding.hpp"

namespace kvcast::report {

struct AnswerChart {
  std::string name;                                   // of the specification; empty: there is nothing to draw
  nlohmann::json data = nlohmann::json::object();     // data set → rows
  nlohmann::json signals = nlohmann::json::object();  // signal → value
  nlohmann::json scales = nlohmann::json::object();   // scale → what it has besides the specification's
  std::set<std::string> unused;                       // scales that have no legend here
};

// What charts need besides the answer.
struct ChartContext {
  Palette& palette;
  const Machines& machines;
  const std::set<std::string>& policies;  // that the store's experiments have
};

// A colour each: a shade of the policy's which a label starts with, or else one of its own.
std::vector<std::string> colors_of(const std::vector<std::string>& labels, const ChartContext& context);

// The vertical axis of a measure: from 0, or logarithmic with round ticks where the values are far apart.
void set_measure_axis(AnswerChart& chart, double least, double most);

// "decode throughput, tokens/s".
std::string axis_title(const std::string& label, const std::string& unit);

// Both variants' metric over a key, or where the targets are met.
AnswerChart chart_break_even(const store::Answer& answer, const nlohmann::json& data, const ChartContext& context);
// A waterfall from one variant's time to the other's.
AnswerChart chart_why(const nlohmann::json& data, const ChartContext& context);
// Bars of elasticities.
AnswerChart chart_sensitivities(const nlohmann::json& data);
// Settings by memory and throughput.
AnswerChart chart_choose(const nlohmann::json& data, const ChartContext& context);
// Ratios of a metric after to before, the largest changes.
AnswerChart chart_changes(const nlohmann::json& data, const ChartContext& context);
// Cells of the best policy.
AnswerChart chart_map(const nlohmann::json& data, const ChartContext& context);
// A value on the range that was searched.
AnswerChart chart_largest(const nlohmann::json& data, const ChartContext& context);

// The chart of any answer; a kind that has none draws nothing.
AnswerChart chart_of(const store::Answer& answer, const nlohmann::json& data, const ChartContext& context);

}  // namespace kvcast::report
