#include "serve/schema.hpp"

#include <fmt/format.h>

#include <set>

#include "base/error.hpp"
#include "base/or_null.hpp"
#include "config/run.hpp"
#include "plan/question.hpp"
#include "policies/all.hpp"
#include "policy/common_parameters.hpp"
#include "policy/policy.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "serve/catalogue.hpp"

namespace kvcast::serve {
namespace {

using config::KeyShape;
using config::Shapes;
using nlohmann::json;

json any_of(std::vector<json> schemas) { return {{"anyOf", std::move(schemas)}}; }
json list_of(const json& items) { return {{"type", "array"}, {"items", items}, {"minItems", 1}}; }
json object_of(json properties) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

json with_range(json schema, const json& low, const json& high) {
  if (!low.is_null()) schema["minimum"] = low;
  if (!high.is_null()) schema["maximum"] = high;
  return schema;
}

json integer(const json& low, const json& high) {
  return any_of({with_range({{"type", "integer"}}, low, high), {{"type", "string"}, {"pattern", "^[1-9][0-9]*[KM]$"}}});
}

// "40 GB", or x0.5 if a factor is allowed.
json quantity() { return {{"type", json::array({"string", "number"})}}; }

json value_schema(const KeyShape& key) {
  using Type = KeyShape::Type;
  switch (key.type) {
    case Type::kInteger:
      return integer(or_null(key.low), or_null(key.high));
    case Type::kNumber:
      return with_range({{"type", "number"}}, or_null(key.low), or_null(key.high));
    case Type::kQuantity:
      return quantity();
    case Type::kValue:  // with or without its origin
      return {{"type", json::array({"string", "number", "object"})}};
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

// A known name, or the path of a file.
json name_or_path(const json& names) { return any_of({{{"enum", names}}, {{"type", "string"}, {"pattern", "[./]"}}}); }

json parameter_schema(const json& parameter) {
  const json& fallback = parameter.at("default");
  json schema;
  if (parameter.contains("known")) {
    json texts = json::array();
    bool other = false;
    for (const json& name : parameter.at("known")) {
      const bool stands_for_others = name.get<std::string>().starts_with('<');
      other = other || stands_for_others;
      if (!stands_for_others) texts.push_back(name);
    }
    schema = other ? json::object() : json{{"enum", texts}};
  } else if (fallback.is_boolean()) {
    schema = {{"type", "boolean"}};
  } else if (fallback.is_number_integer()) {
    schema = integer(parameter.at("range").at(0), parameter.at("range").at(1));
  } else if (fallback.is_number()) {
    schema = with_range({{"type", "number"}}, parameter.at("range").at(0), parameter.at("range").at(1));
  } else {
    schema = {{"type", "string"}};
  }
  const std::string unit = parameter.at("unit").get<std::string>();
  schema["description"] =
      fmt::format("{}{}; default {}", parameter.at("meaning").get<std::string>(), unit.empty() ? "" : ", in " + unit,
                  fallback.is_string() ? fallback.get<std::string>() : fallback.dump());
  return schema;
}

// Also accepts the names of aliases and files.
json names_of(const json& entries) {
  json names = json::array();
  for (const json& entry : entries) {
    names.push_back(entry.at("name"));
    for (const json& alias : entry.value("aliases", json::array())) names.push_back(alias);
  }
  return names;
}

class Writer {
 public:
  Writer() : catalogue_(catalogue_json()), shapes_(config::run_shapes()) {
    for (const json& machine : catalogue_.at("machines")) {
      for (const json& number : machine.at("numbers")) numbers_.insert(number.at("key").get<std::string>());
    }
  }

  json run() const {
    json schema = map_of(shapes_.at("run"));
    const json all = properties();
    for (const auto& [key, value] : all.items()) {
      json& property = schema["properties"][key];
      const json about = property.value("description", json());
      property = value;
      if (!about.is_null()) property["description"] = about;
    }
    return schema;
  }

  // A run, some keys of which are set by `sweep:`.
  json sweep() const {
    json schema = run();
    schema.erase("required");
    schema["properties"]["sweep"] = axes(true);
    schema["required"] = {"sweep"};
    return schema;
  }

  json plan() const {
    json schema = run(), questions = json::array();
    schema.erase("required");
    for (const auto& [kind, keys] : plan::question_shapes()) {
      json question = map_of(keys);
      for (const char* variant : {"of", "against"}) {
        if (question["properties"].contains(variant)) question["properties"][variant] = axes(false);
      }
      const json own = question["properties"];
      if (kind == "choose") question["properties"].update(axes(true)["properties"]);  // lists under any keys
      for (const char* name : {"targets", "price_per_hour"}) {
        if (own.contains(name)) question["properties"][name] = {{"type", "object"}};
      }
      json item = object_of(json{{kind, std::move(question)}});
      item["required"] = {kind};
      questions.push_back(std::move(item));
    }
    schema["properties"]["plan"] = list_of(any_of(questions));
    schema["required"] = {"plan"};
    return schema;
  }

 private:
  json properties() const {
    const json trace = map_of(shapes_.at("trace"));
    return {{"model", name_or_path(names_of(catalogue_.at("models")))},
            {"hardware", hardware()},
            {"policy", policy()},
            {"workload", map_of(shapes_.at("workload"))},
            {"trace", trace},
            {"traces", list_of(trace)},
            {"match", map_of(shapes_.at("match"))},
            {"score", any_of({{{"type", "string"}}, map_of(shapes_.at("score"))})},
            {"framework", framework()},
            {"deployment", map_of(shapes_.at("deployment"))},
            {"price_per_hour", {{"type", {"number", "object"}}, {"minimum", 0}}}};
  }

  // A framework by name and version, or a map of its keys.
  json framework() const {
    json map = map_of(shapes_.at("framework"));
    map["properties"]["name"] = {{"type", "string"}};
    map["type"] = {"string", "object"};  // keys are those of objects
    return map;
  }

  // A machine by name, or a map with the base machine and the numbers that differ.
  json hardware() const {
    const json name = name_or_path(names_of(catalogue_.at("machines")));
    json parts = {{"like", any_of({name, {{"type", "object"}}})}};
    for (const std::string& number : numbers_) {
      const std::size_t dot = number.find('.');
      json& part = parts[number.substr(0, dot)];
      part["type"] = json::array({"object", "string"});  // a host by its name
      part["properties"][number.substr(dot + 1)] = json::object();
    }
    return any_of({name, {{"type", "object"}, {"properties", parts}}});
  }

  // A policy by name, or a map of its name and its own parameters.
  json policy() const {
    json names = names_of(catalogue_.at("policies")), rules = json::array();
    for (const json& p : catalogue_.at("policies")) {
      json properties = {{"name", json::object()}};
      for (const json& parameter : p.at("parameters"))
        properties[parameter.at("key").get<std::string>()] = parameter_schema(parameter);
      for (const policy::Parameter& common : policy::common_parameters(policy::find_policy(p.at("name")))) {
        properties[common.key] = {{"const", common.names.empty() ? json(0) : json(common.names.front())}};
      }
      const json is_this = {{"properties", {{"name", {{"const", p.at("name")}}}}}, {"required", {"name"}}};
      rules.push_back({{"if", is_this}, {"then", object_of(std::move(properties))}});
    }
    const json& files = catalogue_.at("policy_files");
    names.insert(names.end(), files.begin(), files.end());
    const json map = {{"type", "object"},
                      {"properties", {{"name", name_or_path(names)}, {"file", {{"type", "string"}}}}},
                      {"allOf", rules}};
    return any_of({name_or_path(names), map});
  }

  // Dotted keys, and maps of them. With lists, as in a sweep: a list for each key, `zip` and `cases`.
  json axes(bool lists) const {
    json keys = json::object();
    const auto add = [&](const std::string& key, const json& schema) {
      keys[key] = lists ? any_of({schema, list_of(schema), {{"type", "object"}}}) : schema;
    };
    const json all = properties();
    for (const auto& [key, schema] : all.items()) keys[key] = json::object();
    for (const char* map : {"workload", "trace", "match", "score", "framework", "deployment"}) {
      for (const KeyShape& key : shapes_.at(map)) add(fmt::format("{}.{}", map, key.key), schema_of(key));
    }
    for (const char* key :
         {"hardware.like", "hardware.gpu", "hardware.link", "hardware.host", "hardware.link.pcie",
          "hardware.link.pcie.generation", "hardware.link.pcie.lanes", "policy.name", "policy.file", "framework.name"})
      keys[key] = json::object();
    for (const std::string& number : numbers_) keys["hardware." + number] = json::object();
    for (const json& p : catalogue_.at("policies")) {
      for (const json& parameter : p.at("parameters"))
        keys["policy." + parameter.at("key").get<std::string>()] = json::object();
    }
    if (lists) keys["zip"] = keys["cases"] = json::object();
    return object_of(std::move(keys));
  }

  json catalogue_;
  Shapes shapes_;
  std::set<std::string> numbers_;
};

}  // namespace

std::vector<std::string> schema_kinds() { return {"run", "sweep", "plan"}; }

json schema(const std::string& kind) {
  const Writer writer;
  json schema = kind == "run" ? writer.run() : kind == "sweep" ? writer.sweep() : writer.plan();
  schema["$schema"] = "http://json-schema.org/draft-07/schema#";
  schema["title"] = "kvcast " + kind;
  return schema;
}

}  // namespace kvcast::serve
