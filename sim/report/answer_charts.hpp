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
  std::string name;                                   // name of the specification; empty: nothing to draw
  nlohmann::json data = nlohmann::json::object();     // data set → rows
  nlohmann::json signals = nlohmann::json::object();  // signal → value
  nlohmann::json scales = nlohmann::json::object();   // scale → properties in addition to the specification's
  std::set<std::string> unused;                       // scales that have no legend in this chart
};

// Inputs of charts other than the answer.
struct ChartContext {
  Palette& palette;
  const Machines& machines;
  const std::set<std::string>& policies;  // policies in the store's experiments
};

// Returns one colour per label: a shade of the policy's colour if the label starts with a policy, otherwise its own.
std::vector<std::string> colors_of(const std::vector<std::string>& labels, const ChartContext& context);

// Sets the vertical axis of a measure: from 0, or logarithmic with round ticks if the values are far apart.
void set_measure_axis(AnswerChart& chart, double least, double most);

// "decode throughput, tokens/s".
std::string axis_title(const std::string& label, const std::string& unit);

// Draws both variants' metric over a key, or the ranges in which the targets are met.
AnswerChart chart_break_even(const store::Answer& answer, const nlohmann::json& data, const ChartContext& context);
// Draws a waterfall from one variant's time to the other's.
AnswerChart chart_why(const nlohmann::json& data, const ChartContext& context);
// Draws bars of elasticities.
AnswerChart chart_sensitivities(const nlohmann::json& data);
// Draws settings by memory and throughput.
AnswerChart chart_choose(const nlohmann::json& data, const ChartContext& context);
// Draws ratios of a metric after to before, the largest changes.
AnswerChart chart_changes(const nlohmann::json& data, const ChartContext& context);
// Draws cells of the best policy.
AnswerChart chart_map(const nlohmann::json& data, const ChartContext& context);
// Draws a value on the range that was searched.
AnswerChart chart_largest(const nlohmann::json& data, const ChartContext& context);

// Returns the chart of any answer; empty for a kind that has none.
AnswerChart chart_of(const store::Answer& answer, const nlohmann::json& data, const ChartContext& context);

}  // namespace kvcast::report
