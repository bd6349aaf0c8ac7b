// A numeric key of a run as the variable of a question: its unit, its range, and how a value is written into a
// configuration.
#pragma once

#include <string>

#include "base/units.hpp"
#include "config/yaml.hpp"

namespace kvcast::plan {

struct Key {
  std::string path;  // "workload.batch", "policy.budget", "hardware.link.h2d_bandwidth"
  bool integer = false;
  // A curve of a machine: its values are factors of what stands there.
  bool factor = false;
  Dimension dimension = Dimension::kNone;
  double now = 0;            // the run's value, 1 for a curve
  double low = 0, high = 0;  // range that the key accepts
  SourceLocation where;      // in the plan
};

// The key of a run. UserError where it is unknown, or where it is no number: the message lists what is known.
Key find_key(const config::Node& run, const std::string& path, const SourceLocation& asked_at);
// Whether the run's policy has the parameter; true for keys that are not of a policy.
bool has_key(const config::Node& run, const std::string& path);

// A value of the key in its base unit: a quantity, an integer, or a factor of the run's value (x0.5). UserError at the
// node for anything else and outside of the key's range.
double read_value(const Key& key, const config::Node& node);
// The end of a range of prompt lengths that is the model's whole context leaves room for what the run generates; any
// other end is as it is.
double end_of_range(const Key& key, double end, const config::Node& run);
// A value as a configuration writes it: "8", "25 GB/s", "0.8", "x2" of a curve.
std::string value_text(const Key& key, double value);
// For people: three significant digits.
std::string short_text(const Key& key, double value);
// The run with the key at a value.
config::Node with_value(const config::Node& run, const Key& key, double value);

}  // namespace kvcast::plan
