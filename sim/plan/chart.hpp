// The chart of an answer, and the parts that the charts of several questions share.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "result/metric.hpp"
#include "result/result.hpp"

namespace kvcast::plan {

// Numbers of machines, by machine: the units of keys.
using Machines = std::map<std::string, std::vector<result::MachineNumber>>;

// Rows, signals and scales of a Vega specification under reports/charts. A question declares it from its answer's data.
// Colours are those of the page: `color` and `machine_color` of a row name a group of its palette and an entry
// ("signs/more") or a variant ("variants/quest, budget 64"), `symbol` a policy.
struct Chart {
  std::string spec = {};                              // name of the specification; empty: nothing to draw
  nlohmann::json data = nlohmann::json::object();     // data set → rows
  nlohmann::json signals = nlohmann::json::object();  // signal → value
  nlohmann::json scales = nlohmann::json::object();   // scale → properties in addition to the specification's
  std::vector<std::string> variants = {};  // labels, each of which has a shade of its policy's colour, in this order
  std::vector<std::string> unused = {};    // scales that have no legend in this chart

  // Sets the vertical axis of a measure: from 0, or logarithmic with round ticks if the values are far apart.
  void set_measure_axis(double least, double most);
};

// The axis of a configuration key: its title, its unit, and the format of its values.
struct KeyAxis {
  std::string title;    // "batch, sequences", "gpu.hbm_bandwidth, TB/s"
  std::string unit;     // "TB/s"; empty for counts
  double scale = 1;     // multiplies a value in the base unit to give one in `unit`
  bool tokens = false;  // counts of tokens: 32768 reads 32K

  double shown(double value) const { return value * scale; }
  // "32K", "1,536", "3.35 TB/s", "0.75 times".
  std::string text(double value) const;
  // A chart over the key's values in a range: logarithmic if they are far apart, which requires values above 0.
  Chart chart(const char* spec, double from, double to) const;
  // A row for a value and its interval.
  nlohmann::json mark(double value, double low, double high) const;
};

// Numbers of machines take their units from the machines of the store, with the prefix that suits the largest value
// shown; a curve is a factor of the machine's own. Any other key is a count.
KeyAxis axis_of(const std::string& key, double largest, const Machines& machines);

// Formats a number with three digits, whole numbers with all of theirs: "0.375", "4,096".
std::string number_text(double value);
// The same with its sign: "+4", "−0.25".
std::string signed_text(double value);

// The metric that an answer is about.
const result::Metric& metric_of(const nlohmann::json& data);
// "decode throughput, tokens/s".
std::string axis_title(const result::Metric& metric, const std::string& unit = "");

}  // namespace kvcast::plan
