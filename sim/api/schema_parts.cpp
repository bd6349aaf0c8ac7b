#include "api/schema_parts.hpp"

#include <utility>
#include <vector>

#include "api/schema_values.hpp"
#include "plan/question.hpp"
#include "result/metric.hpp"

namespace kvcast::api {

using nlohmann::json;

namespace {

// Metrics by path and alias. `ordered`: only those of which more or less is better.
std::vector<std::pair<std::string, const result::Metric*>> metrics_by_name(bool ordered) {
  std::vector<std::pair<std::string, const result::Metric*>> metrics;
  for (const result::Metric& m : result::all_metrics()) {
    if (ordered && m.better == result::Better::kNeither) continue;
    metrics.emplace_back(m.path, &m);
    if (!m.alias.empty()) metrics.emplace_back(m.alias, &m);
  }
  return metrics;
}

// Lengths of requests: a number, or a distribution.
json lengths_of(const config::Shapes& shapes, const std::string& title, json number) {
  const json keys = map_of(shapes.at(title))["properties"];
  std::vector<json> kinds;
  const std::vector<std::vector<const char*>> maps = {{"mean", "cv"}, {"low", "high"}, {"file"}};
  for (const auto& names : maps) {
    json map = json::object();
    for (const char* name : names) map[name] = keys.at(name);
    json kind = object_of(std::move(map));
    kind["required"] = names;
    kinds.push_back(std::move(kind));
  }
  json any = {{"if", {{"type", "object"}}}, {"then", any_of(std::move(kinds))}, {"else", number}};
  if (number.contains("description")) any["description"] = number["description"];
  return any;
}

}  // namespace

json metric_names(bool ordered) {
  json names = json::array();
  for (const auto& [name, metric] : metrics_by_name(ordered)) names.push_back(name);
  return {{"enum", std::move(names)}};
}

json targets() {
  json limits = json::object();
  for (const auto& [name, metric] : metrics_by_name(false)) limits[name] = matching(plan::target_pattern(*metric));
  json map = object_of(std::move(limits));
  map["minProperties"] = 1;
  return map;
}

json section_of(const config::Shapes& shapes, const std::string& title) {
  json map = map_of(shapes.at(title));
  json& keys = map["properties"];
  const auto also = [&keys](const char* key, const json& value) {
    json& schema = keys[key];
    json about = schema.value("description", json());
    schema = any_of({schema, {{"const", value}}});
    if (!about.is_null()) schema["description"] = std::move(about);
  };
  if (title == "model") {
    for (const char* key : {"rope", "experts", "sliding", "latent", "recurrence", "compressed"})
      keys[key] = map_of(shapes.at(key));
    map["oneOf"] = {{{"required", {"like"}}}, {{"required", {"config"}}}};
  }
  if (title == "framework") keys["scheduler"] = section_of(shapes, "scheduler");
  if (title == "scheduler") also("host_cache", 0);
  if (title == "workload") {
    json one = keys["prompt_tokens"];
    const json about = std::exchange(one["description"], json());
    one.erase("description");
    keys["prompt_tokens"] = any_of({one, list_of(one)});
    keys["prompt_tokens"]["description"] = about;
  }
  if (title == "deployment") {
    for (const char* key : {"transfer", "experts_on_host"}) keys[key] = map_of(shapes.at(key));
  }
  if (title != "traffic") return map;
  also("rate", "all"), also("length_factor", "published");
  for (const char* key : {"prompt_tokens", "output_tokens"}) keys[key] = lengths_of(shapes, key, keys[key]);
  for (const char* key : {"shared_prefix", "sessions", "slo"}) {
    const json about = keys[key].value("description", json());
    keys[key] = map_of(shapes.at(key));
    keys[key].erase("required");  // a sweep may have the others
    keys[key]["description"] = about;
  }
  keys["slo"]["minProperties"] = 1;
  std::vector<json> arrivals;
  for (const char* key : {"rate", "concurrency", "file"}) arrivals.push_back({{"required", {key}}});
  map["oneOf"] = std::move(arrivals);
  return map;
}

std::map<std::string, json> keys_of_inner_maps(const json& section) {
  std::map<std::string, json> all;
  for (const auto& [key, schema] : section.at("properties").items()) {
    json kinds = schema.value("then", json::object()).value("anyOf", json::array());
    kinds.push_back(schema);
    for (const json& kind : kinds) {
      const json keys = kind.value("properties", json::object());
      for (const auto& [inner, value] : keys.items()) all[key + "." + inner] = value;
    }
  }
  return all;
}

}  // namespace kvcast::api
