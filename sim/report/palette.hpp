// Colours and symbols: those of a policy are the same on every page, those of other names throughout a report.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace kvcast::report {

// `definition`: {"policies": {name: {"color", "symbol"}}, "shades": [0, 0.35, -0.35, ..], "kinds": {name: colour},
// "owners": {..}, "signs": {..}, "cycles": {group: [colours]}, "symbols": [Vega symbols], "dashes": ["1,0", ..]}.
// Colours are "#rrggbb". A name without an entry takes the next of the cycle, in the order of requests.
class Palette {
 public:
  explicit Palette(nlohmann::json definition) : definition_(std::move(definition)) {}

  std::string color(const std::string& group, const std::string& name);
  // Colour of a policy's nth variant, counted from 0: the policy's colour, mixed with white (shade > 0) or black.
  std::string variant_color(const std::string& policy, std::size_t nth);
  std::string symbol(const std::string& policy);
  std::string dash(std::size_t nth) const;

 private:
  // The entry of the name, or the next of the cycle.
  std::string given(const std::string& group, const std::string& name, const nlohmann::json& cycle);

  nlohmann::json definition_;
  std::map<std::string, std::map<std::string, std::string>> given_;  // group → name → entry from the cycle
};

}  // namespace kvcast::report
