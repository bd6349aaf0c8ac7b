#include "report/palette.hpp"

#include <fmt/format.h>

#include <cmath>

namespace kvcast::report {
namespace {

using nlohmann::json;

std::string nth_of(const json& list, std::size_t nth) {
  return list.is_array() && !list.empty() ? list[nth % list.size()].get<std::string>() : "";
}

// Null if the definition has none.
const json& own_entry(const json& definition, const std::string& group, const std::string& name) {
  static const json none;
  const auto names = definition.find(group);
  if (names == definition.end()) return none;
  const auto entry = names->find(name);
  return entry == names->end() ? none : *entry;
}

// Returns "#rrggbb", mixed with white (share > 0) or black.
std::string mixed(const std::string& color, double share) {
  const unsigned long rgb = std::stoul(color.substr(1), nullptr, 16);
  std::string out = "#";
  for (const int shift : {16, 8, 0}) {
    const auto part = static_cast<double>((rgb >> shift) & 0xff);
    out += fmt::format("{:02x}", std::lround(part + ((share > 0 ? 255.0 : 0.0) - part) * std::abs(share)));
  }
  return out;
}

}  // namespace

std::string Palette::given(const std::string& group, const std::string& name, const json& cycle) {
  std::map<std::string, std::string>& names = given_[group];
  const auto found = names.find(name);
  return found != names.end() ? found->second : names[name] = nth_of(cycle, names.size());
}

std::string Palette::color(const std::string& group, const std::string& name) {
  const json& own = own_entry(definition_, group, name);
  if (own.is_string()) return own;
  if (own.is_object()) return own.at("color");
  return given(group, name, definition_.value("cycles", json::object()).value(group, json::array()));
}

std::string Palette::variant_color(const std::string& policy, std::size_t nth) {
  const std::string own = color("policies", policy);
  const json shades = definition_.value("shades", json::array());
  return shades.empty() || nth == 0 ? own : mixed(own, shades.at(nth % shades.size()).get<double>());
}

std::string Palette::symbol(const std::string& policy) {
  const json& own = own_entry(definition_, "policies", policy);
  return own.is_object() ? own.at("symbol").get<std::string>()
                         : given("symbols of policies", policy, definition_.value("symbols", json::array()));
}

std::string Palette::dash(std::size_t nth) const { return nth_of(definition_.value("dashes", json::array()), nth); }

}  // namespace kvcast::report
