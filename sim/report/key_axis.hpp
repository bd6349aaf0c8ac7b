// The axis of a configuration key: its title, its unit, and the format of its values.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "result/result.hpp"

namespace kvcast::report {

struct KeyAxis {
  std::string title;    // "batch, sequences", "gpu.hbm_bandwidth, TB/s"
  std::string unit;     // "TB/s"; empty for counts
  double scale = 1;     // multiplies a value in the base unit to give one in `unit`
  bool tokens = false;  // counts of tokens: 32768 reads 32K

  double shown(double value) const { return value * scale; }
  // "32K", "1,536", "3.35 TB/s", "0.75 times".
  std::string text(double value) const;
};

using Machines = std::map<std::string, std::vector<result::MachineNumber>>;

// Numbers of machines take their units from the machines of the store, with the prefix that suits the largest value
// shown; a curve is a factor of the machine's own. Any other key is a count.
KeyAxis axis_of(const std::string& key, double largest, const Machines& machines);

// Formats a number with three digits, whole numbers with all of theirs: "0.375", "4,096".
std::string number_text(double value);

// Returns 1, 2 and 5 times powers of ten from low to high, for the ticks of a logarithmic axis.
nlohmann::json log_ticks(double low, double high);

// Returns a Vega scale for values from low to high: logarithmic if they are far apart, which requires values above 0.
nlohmann::json scale_between(double low, double high, int base);

}  // namespace kvcast::report
