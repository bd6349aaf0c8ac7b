#include "api/schema_values.hpp"

#include <fmt/format.h>

#include <cctype>

#include "base/or_null.hpp"
#include "base/units.hpp"

namespace kvcast::api {
namespace {

using config::KeyShape;
using nlohmann::json;

json factor() { return matching(fmt::format("^x{}$", quantity_pattern(Dimension::kNone))); }

// "40 GB", "95 %", 0.95: a number without a unit only where the reader takes one.
json quantity(Dimension dimension, const json& low, const json& high) {
  const json number = with_range({{"type", "number"}}, low, high);
  if (dimension == Dimension::kNone) return number;
  const bool fraction = dimension == Dimension::kFraction;
  const json text = matching(fmt::format("{}{}$", fraction ? "^(?=.*%)" : "^", quantity_pattern(dimension)));
  return fraction ? any_of({number, text}) : text;
}

// A value, or a map of it and its grounds.
json with_grounds(const json& value, json more = json::object()) {
  const json share = {{"type", {"number", "string"}}};
  const json text = {{"type", "string"}};
  more["value"] = value, more["origin"] = text, more["uncertainty"] = share, more["source"] = text;
  return any_of({value, object_of(std::move(more))});
}

json value_schema(const KeyShape& key) {
  using Type = KeyShape::Type;
  switch (key.type) {
    case Type::kInteger:
      return integer(or_null(key.low), or_null(key.high));
    case Type::kNumber:
      return with_range({{"type", "number"}}, or_null(key.low), or_null(key.high));
    case Type::kQuantity:
      return quantity(key.dimension, or_null(key.low), or_null(key.high));
    case Type::kValue:
      return with_grounds(any_of({quantity(key.dimension, or_null(key.low), or_null(key.high)), factor()}));
    case Type::kFlag:
      return {{"type", "boolean"}};
    case Type::kText:
      return key.choices.empty() ? json{{"type", "string"}} : json{{"enum", key.choices}};
    case Type::kList:
      return {{"type", "array"}};
    case Type::kMap:
      return {{"type", "object"}};
    case Type::kAny:
      break;
  }
  return json::object();
}

// A regular expression of a name in any case, with any blanks, '-' and '_' in it.
std::string loosely(const std::string& name, const std::string& before_dash = "") {
  std::string pattern = "[-_ ]*";
  for (const char c : name) {
    if (c == '-' && !before_dash.empty()) pattern += fmt::format("{}[-_ ]*", before_dash);
    if (c == '-' || c == '_' || c == ' ') continue;
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = std::isalpha(byte) != 0, plain = letter || std::isdigit(byte) != 0;
    const auto upper = static_cast<char>(std::toupper(byte)), lower = static_cast<char>(std::tolower(byte));
    pattern += letter ? fmt::format("[{}{}]", upper, lower) : plain ? std::string(1, c) : fmt::format("\\{}", c);
    pattern += "[-_ ]*";
  }
  return pattern;
}

json names_or_pattern(const std::vector<std::string>& names, const std::string& pattern) {
  return any_of({{{"enum", names}}, matching(pattern)});
}

constexpr const char* kPath = "/|\\.yaml$";

}  // namespace

json any_of(std::vector<json> schemas) { return {{"anyOf", std::move(schemas)}}; }
json list_of(const json& items) { return {{"type", "array"}, {"items", items}, {"minItems", 1}}; }
json matching(const std::string& pattern) { return {{"type", "string"}, {"pattern", pattern}}; }

json object_of(json properties) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

json with_range(json schema, const json& low, const json& high) {
  if (!low.is_null()) schema["minimum"] = low;
  if (!high.is_null()) schema["maximum"] = high;
  return schema;
}

json integer(const json& low, const json& high) {
  return any_of({with_range({{"type", "integer"}}, low, high), matching("^[1-9][0-9]*[KM]$")});
}

json name_or_path(const std::vector<std::string>& names) { return names_or_pattern(names, kPath); }

json loose_name_or_path(const std::vector<std::string>& names) {
  std::string pattern = kPath;
  for (const std::string& name : names) pattern += fmt::format("|^{}$", loosely(name));
  return names_or_pattern(names, pattern);
}

json framework_name(const std::vector<std::string>& names) {
  const std::string version = "(-[0-9.]+)?";  // at the end of any word
  std::string pattern = kPath;
  for (const std::string& name : names) {
    std::string family;  // without the version that a file's own name has
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '-' && i + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[i + 1])) != 0) {
        i = std::min(name.find_first_not_of("0123456789.", i + 1), name.size());
      }
      if (i < name.size()) family += name[i];
    }
    pattern += fmt::format("|^{}{}$", loosely(family, version), version);
    if (family != name) pattern += fmt::format("|^{}$", loosely(name));
  }
  return names_or_pattern(names, pattern);
}

json schema_of(const KeyShape& key) {
  json schema = value_schema(key);
  std::string description = key.about;
  const auto add = [&](const std::string& text) { description += (description.empty() ? "" : "; ") + text; };
  if (!key.example.empty()) add("such as " + key.example);
  if (key.fallback && !key.fallback->empty()) add("default " + *key.fallback);
  if (!description.empty()) schema["description"] = description;
  return schema;
}

json map_of(const std::vector<KeyShape>& keys) {
  json properties = json::object(), required = json::array();
  for (const KeyShape& key : keys) {
    properties[key.key] = schema_of(key);
    if (key.required) required.push_back(key.key);
  }
  json schema = object_of(std::move(properties));
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

json schema_of(const policy::Parameter& p) {
  const auto count = [&] { return integer(static_cast<std::int64_t>(p.low), static_cast<std::int64_t>(p.high)); };
  const json number = with_range({{"type", "number"}}, p.low, p.high);
  json schema;
  if (!p.names.empty()) {
    std::vector<std::string> texts;
    std::vector<json> others;
    for (const std::string& name : p.names) {
      if (name == "<integer>") {
        others.push_back(count());
      } else if (name == "<number>") {
        others.push_back(number);
      } else if (name.starts_with('<')) {
        others.push_back({{"type", {"string", "object"}}});
      } else {
        texts.push_back(name);
      }
    }
    others.push_back({{"enum", texts}});
    schema = others.size() == 1 ? others.front() : any_of(std::move(others));
  } else if (std::holds_alternative<bool>(p.fallback)) {
    schema = {{"type", "boolean"}};
  } else if (std::holds_alternative<std::int64_t>(p.fallback)) {
    schema = count();
  } else {
    schema = std::holds_alternative<double>(p.fallback) ? number : json{{"type", "string"}};
  }
  const json fallback = std::visit([](const auto& v) { return json(v); }, p.fallback);
  schema["description"] = fmt::format("{}{}; default {}", p.meaning, p.unit.empty() ? "" : ", in " + p.unit,
                                      fallback.is_string() ? fallback.get<std::string>() : fallback.dump());
  return schema;
}

json schema_of(const config::ConstKnob& knob) {
  if (knob.curve != nullptr) {
    json points = {{"points", list_of(list_of({{"type", {"number", "string"}}}))}};
    return with_grounds(factor(), std::move(points));
  }
  return with_grounds(any_of({quantity(knob.y, knob.low, knob.high), factor()}));
}

}  // namespace kvcast::api
