// A numeric key of a run as the variable of a question: its unit, its range, and how a value is written into a
// configuration.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "config/yaml.hpp"

namespace kvcast::plan {

struct VariedKey {
  std::string path;  // "workload.batch", "policy.budget", "hardware.link.h2d_bandwidth"
  bool integer = false;
  // For a curve of a machine: values are factors of the profile's curve.
  bool factor = false;
  Dimension dimension = Dimension::kNone;
  double now = 0;            // the run's value, 1 for a curve
  double low = 0, high = 0;  // range that the key accepts
  SourceLocation where;      // location in the plan
};

// Finds a key of the run. Throws UserError if it is unknown or not a number; the message lists the known keys.
VariedKey find_key(const config::Node& run, const std::string& path, const SourceLocation& asked_at);
// Returns whether the run's policy has the parameter; true for keys that are not of a policy.
bool has_key(const config::Node& run, const std::string& path);

// Reads a value of the key in its base unit: a quantity, an integer, or a factor of the run's value (x0.5). Throws
// UserError at the node for anything else and outside of the key's range.
double read_value(const VariedKey& key, const config::Node& node);
// Returns the number of sequences that the run's engine serves at a time (framework.max_batch), whatever batch the run
// requests; nothing if memory alone decides.
std::optional<int> engine_batch(const config::Node& run);
// Returns the end of a range. A range of prompt lengths that ends at the model's whole context is reduced by the
// generated tokens, a range of batches by the engine's limit; any other end is unchanged.
double end_of_range(const VariedKey& key, double end, const config::Node& run);
// A value as a configuration writes it: "8", "25 GB/s", "0.8", "x2" of a curve.
std::string value_text(const VariedKey& key, double value);
// A value as answers have it: an integer of an integer key, otherwise a number in the base unit.
nlohmann::json json_of(const VariedKey& key, double value);
// Formats a value for people: three significant digits.
std::string short_text(const VariedKey& key, double value);
// The run with the key at a value.
config::Node with_value(const config::Node& run, const VariedKey& key, double value);

}  // namespace kvcast::plan
