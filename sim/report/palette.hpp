// Colours that a name keeps throughout a report.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace kvcast::report {

// `definition`: {"policies": {name: colour}, "kinds": {..}, "owners": {..}, "cycles": {group: [colours]},
// "symbols": [Vega symbols], "dashes": ["", "4,2", ..]}. A name without a colour of its own takes the next of the
// cycle, in the order of asking.
class Palette {
 public:
  explicit Palette(nlohmann::json definition) : definition_(std::move(definition)) {}

  std::string color(const std::string& group, const std::string& name);
  std::string symbol(std::size_t nth) const {
    return cycle(definition_.value("symbols", nlohmann::json::array()), nth);
  }
  std::string dash(std::size_t nth) const { return cycle(definition_.value("dashes", nlohmann::json::array()), nth); }

 private:
  static std::string cycle(const nlohmann::json& colors, std::size_t nth);

  nlohmann::json definition_;
  std::map<std::string, std::map<std::string, std::string>> given_;  // group → name → colour from the cycle
};

}  // namespace kvcast::report
