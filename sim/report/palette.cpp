#include "report/palette.hpp"

namespace kvcast::report {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

}  // namespace

std::string Palette::cycle(const json& colors, std::size_t nth) {
  return colors.is_array() && !colors.empty() ? text_of(colors[nth % colors.size()]) : "";
}

std::string Palette::color(const std::string& group, const std::string& name) {
  const json own = definition_.value(group, json::object());
  if (own.is_object() && own.contains(name)) return text_of(own[name]);
  std::map<std::string, std::string>& given = given_[group];
  const auto found = given.find(name);
  if (found != given.end()) return found->second;
  const json cycles = definition_.value("cycles", json::object());
  return given[name] = cycle(cycles.value(group, json::array()), given.size());
}

}  // namespace kvcast::report
