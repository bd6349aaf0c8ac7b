#include "api/schema.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "api/catalogue.hpp"
#include "api/schema_parts.hpp"
#include "api/schema_values.hpp"
#include "base/error.hpp"
#include "config/find.hpp"
#include "config/pcie.hpp"
#include "config/run.hpp"
#include "plan/question.hpp"
#include "policies/all.hpp"
#include "policy/common_parameters.hpp"
#include "policy/policy.hpp"
#include "synth/recipe.hpp"

namespace kvcast::api {
namespace {

using config::KeyShape;
using config::Shapes;
using nlohmann::json;

json reference(const std::string& definition) { return {{"$ref", fmt::format("#/definitions/{}", definition)}}; }

// Errors are found within the map, where those of any_of would be of the whole.
json text_or_map(const json& text, json map) {
  return {{"type", {"string", "object"}}, {"if", {{"type", "string"}}}, {"then", text}, {"else", std::move(map)}};
}

// Also accepts the names of aliases.
std::vector<std::string> names_of(const json& entries) {
  std::vector<std::string> names;
  for (const json& entry : entries) {
    names.push_back(entry.at("name"));
    for (const json& alias : entry.value("aliases", json::array())) names.push_back(alias);
  }
  return names;
}

std::vector<std::string> benchmark_names() {
  std::vector<std::string> names(std::begin(config::kBenchmarks), std::end(config::kBenchmarks));
  names.emplace_back(config::ScoreChoice::kNone);
  return names;
}

// A map that has all of the first keys and none of the second.
json only(std::span<const std::string_view> present, std::span<const std::string_view> absent) {
  std::vector<json> any;
  for (const std::string_view key : absent) any.push_back(json{{"required", {key}}});
  return {{"required", present}, {"not", any_of(std::move(any))}};
}

// States whether values at a place are lists: the axes of a sweep, which must be; its cases; and the settings of a
// question, which must not be.
enum class Lists { kRequired, kAllowed, kRefused };

json value_of(const json& schema, Lists lists) {
  if (lists == Lists::kRefused) return schema;
  return lists == Lists::kRequired ? list_of(schema) : any_of({schema, list_of(schema)});
}

class Writer {
 public:
  Writer() : catalogue_(catalogue_json()), shapes_(config::run_shapes()) {
    for (const policy::Descriptor& p : policy::all_policies()) policies_.push_back(&p);
    policies_.push_back(&policy::replayed_policy());
    define_names();
    config::Hardware any;
    any.gpu.attention_mha.emplace();
    for (const config::ConstKnob& knob : config::knobs(std::as_const(any))) {
      numbers_[knob.key] = defined(fmt::format("hardware.{}", knob.key), schema_of(knob));
    }
    for (const char* map :
         {"model", "workload", "trace", "match", "score", "framework", "deployment", "traffic", "scheduler"}) {
      maps_[map] = section_of(shapes_, map);
      for (auto& [key, schema] : maps_[map]["properties"].items()) {
        const std::string path = fmt::format("{}.{}", map, key);
        schema = with_names(path, schema);
        defined(path, schema);
      }
    }
    maps_["framework"]["properties"]["name"] = definitions_["framework.name"] = reference("framework");
    maps_["match"]["minProperties"] = maps_["match"]["maxProperties"] = 1;
    maps_["trace"]["anyOf"] = {json{{"not", {{"required", {"file"}}}}}, json{{"maxProperties", 1}}};
  }

  json run() const {
    json schema = whole_run();
    schema["definitions"] = definitions_;
    return schema;
  }

  // A run, some keys of which are set by `sweep:`; without it, one run.
  json sweep() const {
    json schema = run_in_parts();
    json complete = {{"required", schema["required"]}, {"properties", {{"policy", named_policy()}}}};
    schema.erase("required");
    schema["properties"]["sweep"] = reference("axes");
    schema["anyOf"] = {json{{"required", {"sweep"}}}, std::move(complete)};
    return with_axes(std::move(schema), false);
  }

  json plan() const {
    json schema = whole_run(), questions = json::array();
    for (const plan::Kind* kind : plan::questions()) {
      json item = object_of(json{{kind->name, question(*kind)}});
      item["required"] = {kind->name};
      questions.push_back(std::move(item));
    }
    schema["properties"]["plan"] = list_of(any_of(questions));
    schema["required"].push_back("plan");
    return with_axes(std::move(schema), true);
  }

 private:
  // Schemas that are used in several places, so that each is written once.
  json defined(const std::string& name, json schema) {
    definitions_[name] = std::move(schema);
    return reference(name);
  }

  void define_names() {
    defined("model", loose_name_or_path(names_of(catalogue_.at("models"))));
    defined("machine", loose_name_or_path(names_of(catalogue_.at("machines"))));
    defined("host", loose_name_or_path(config::names_in("hosts")));
    defined("framework", framework_name(config::names_in("frameworks")));
    defined("recipe", name_or_path(trace::recipe_names()));
    defined("benchmark", loose_name_or_path(benchmark_names()));
  }

  // Values of some keys are names that their readers do not know as choices.
  static json with_names(const std::string& key, json schema) {
    for (const char* name : {"trace.recipe", "score.benchmark"}) {
      if (key != name) continue;
      schema["allOf"] = {reference(key.substr(key.find('.') + 1))};
    }
    return schema;
  }

  // Adds the definitions of axes and settings, and those of questions.
  json with_axes(json schema, bool questions) const {
    schema["definitions"] = definitions_;
    schema["definitions"]["axes"] = axes(Lists::kRequired);
    schema["definitions"]["case"] = axes(Lists::kAllowed);
    schema["definitions"]["settings"] = axes(Lists::kRefused);
    if (!questions) return schema;
    schema["definitions"]["targets"] = targets();
    schema["definitions"]["ordered_metric"] = metric_names(true);
    return schema;
  }

  json run_in_parts() const {
    json schema = map_of(shapes_.at("run"));
    const json all = properties();
    for (const auto& [key, value] : all.items()) {
      json& property = schema["properties"][key];
      const json about = property.value("description", json());
      property = value;
      if (!about.is_null()) property["description"] = about;
    }
    schema["not"] = {{"required", {"trace", "traces"}}};
    return schema;
  }

  // Adds the rules that involve several keys.
  json whole_run() const {
    json schema = run_in_parts();
    const json budget = {{"type", "object"}, {"required", {"budget"}}};
    const json no_budget = {{"properties", {{"policy", {{"not", budget}}}}}};
    schema["allOf"] = {json{{"properties", {{"policy", named_policy()}}}},
                       json{{"if", {{"required", {"match"}}}}, {"then", no_budget}}};
    return schema;
  }

  json question(const plan::Kind& kind) const {
    json schema = map_of(config::shapes_in(kind.keys));
    json& properties = schema["properties"];
    const json own = properties;
    if (kind.has_axes) properties.update(axes(Lists::kAllowed)["properties"]);
    for (const auto& [key, value] : own.items()) properties[key] = question_key(kind, key, value);
    if (!kind.either.empty()) schema["oneOf"] = {only(kind.either, kind.other), only(kind.other, kind.either)};
    return schema;
  }

  json question_key(const plan::Kind& kind, const std::string& key, const json& schema) const {
    if (key == "of" || key == "against") return reference("settings");
    if (key == "targets") return reference("targets");
    if (key == "price_per_hour") return prices();
    if (key == "metric") return kind.any_metric ? metric_names(false) : reference("ordered_metric");
    return schema;
  }

  json properties() const {
    json hardware_map = hardware(Lists::kRefused);
    hardware_map["required"] = {"like"};
    return {{"model", text_or_map(reference("model"), maps_.at("model"))},
            {"hardware", text_or_map(reference("machine"), std::move(hardware_map))},
            {"policy", policy()},
            {"workload", maps_.at("workload")},
            {"trace", maps_.at("trace")},
            {"traces", traces()},
            {"match", maps_.at("match")},
            {"score", text_or_map(reference("benchmark"), maps_.at("score"))},
            {"framework", text_or_map(reference("framework"), maps_.at("framework"))},
            {"deployment", maps_.at("deployment")},
            {"traffic", maps_.at("traffic")},
            {"scheduler", maps_.at("scheduler")},
            {"price_per_hour", any_of({{{"type", "number"}, {"minimum", 0}}, prices()})}};
  }

  json prices() const {
    return {{"type", "object"},
            {"propertyNames", reference("machine")},
            {"additionalProperties", {{"type", "number"}, {"minimum", 0}}},
            {"minProperties", 1}};
  }

  json traces() const {
    json list = list_of(maps_.at("trace"));
    list["uniqueItems"] = true;
    return list;
  }

  // The map of a machine's numbers that differ from `like`, with lists as values where the place has them.
  json hardware(Lists lists) const {
    json parts = json::object();
    for (const auto& [number, schema] : numbers_) {
      const std::size_t dot = number.find('.'), inner = number.find('.', dot + 1);
      json& part = parts[number.substr(0, dot)];
      const bool nested = inner != std::string::npos;
      json& map = nested ? part[number.substr(dot + 1, inner - dot - 1)]["properties"] : part;
      map[number.substr(nested ? inner + 1 : dot + 1)] = value_of(schema, lists);
    }
    json& mha = parts["gpu"]["attention_mha"];
    mha = object_of(std::move(mha["properties"]));
    for (const char* whole : {"range", "attention_correction"}) {
      parts["gpu"][whole] = value_of({{"type", "object"}}, lists);
    }
    json pcie = {{"generation", value_of(integer(config::kFirstPcie, config::kNewestPcie), lists)},
                 {"lanes", value_of({{"enum", {1, 2, 4, 8, config::kMostLanes}}}, lists)}};
    parts["link"]["pcie"] = object_of(std::move(pcie));
    parts["host"]["like"] = value_of(reference("host"), lists);
    json like = object_of({{"name", reference("machine")}, {"uncertainty", {{"type", {"number", "string"}}}}});
    like["required"] = {"name"};
    const json host = object_of(std::move(parts["host"]));
    return object_of({{"like", value_of(any_of({reference("machine"), std::move(like)}), lists)},
                      {"gpu", object_of(std::move(parts["gpu"]))},
                      {"link", object_of(std::move(parts["link"]))},
                      {"host", any_of({value_of(any_of({reference("host"), host}), lists), host})}});
  }

  json policy_name() const {
    std::vector<std::string> names;
    for (const json& file : catalogue_.at("policy_settings")) names.push_back(file.at("name").get<std::string>());
    for (const policy::Descriptor* p : policies_) names.push_back(p->name);
    return name_or_path(names);
  }

  // A policy by name, or a map of its name and its own parameters.
  json policy() const {
    json rules = json::array();
    for (const policy::Descriptor* p : policies_) {
      json properties = {{"name", json::object()}};
      for (const policy::Parameter& parameter : p->parameters) properties[parameter.key] = schema_of(parameter);
      for (const policy::Parameter& common : policy::common_parameters(*p)) {
        properties[common.key] = {{"const", common.names.empty() ? json(0) : json(common.names.front())}};
      }
      const json is_this = {{"properties", {{"name", {{"const", p->name}}}}}, {"required", {"name"}}};
      rules.push_back({{"if", is_this}, {"then", object_of(std::move(properties))}});
    }
    const json map = {{"type", "object"},
                      {"properties", {{"name", policy_name()}, {"file", {{"type", "string"}}}}},
                      {"allOf", rules}};
    return any_of({policy_name(), map});
  }

  // A policy's map has either a name or a file.
  static json named_policy() {
    const json name = {{"required", {"name"}}}, file = {{"required", {"file"}}};
    return any_of({{{"not", {{"type", "object"}}}}, {{"oneOf", {name, file}}}});
  }

  // Parameters of all policies, and the names of those that take a policy of their own.
  std::set<std::string> parameter_names(bool of_policies) const {
    std::set<std::string> names;
    for (const policy::Descriptor* p : policies_) {
      for (const policy::Parameter& parameter : p->parameters) {
        if (!of_policies || parameter.accepts("<policy>")) names.insert(parameter.key);
      }
    }
    return names;
  }

  // The keys of a policy's map where its name may be given elsewhere.
  json policy_keys(Lists lists) const {
    json keys = {{"name", value_of(policy_name(), lists)}, {"file", value_of({{"type", "string"}}, lists)}};
    const std::set<std::string> nested = parameter_names(true);
    for (const std::string& name : parameter_names(false)) {
      const json list = {{"type", "array"}, {"minItems", 1}};
      keys[name] = lists != Lists::kRequired ? json::object()
                   : nested.contains(name)   ? any_of({list, {{"type", "object"}}})
                                             : list;
    }
    return object_of(std::move(keys));
  }

  // Settings of a run by dotted keys and by maps, and lists of them as the place has them.
  json axes(Lists lists) const {
    json keys = json::object();
    const json all = properties();
    for (const auto& [name, written] : maps_) {
      json whole = written, inner = json::object();
      if (name == "score") whole["properties"].erase("floor");  // affects no result: nothing can vary it
      for (auto& [key, schema] : whole["properties"].items()) {
        const std::string path = fmt::format("{}.{}", name, key);
        schema = reference(path);
        inner[key] = keys[path] = value_of(schema, lists);
      }
      for (const auto& [path, schema] : keys_of_inner_maps(written)) {
        keys[fmt::format("{}.{}", name, path)] = value_of(schema, lists);
      }
      if (definitions_.contains(name)) {
        whole = text_or_map(reference(name), std::move(whole));
      } else if (name == "score") {
        whole = text_or_map(reference("benchmark"), std::move(whole));
      }
      keys[name] = any_of({value_of(whole, lists), object_of(std::move(inner))});
    }
    for (const char* name : {"traces", "price_per_hour", "name", "description"}) {
      keys[name] = value_of(all.value(name, json{{"type", "string"}}), lists);
    }
    add_hardware(lists, keys);
    const json policy = policy_keys(lists);
    for (const auto& [key, schema] : policy["properties"].items()) keys["policy." + key] = schema;
    keys["policy"] = any_of({value_of(any_of({policy_name(), policy_keys(Lists::kRefused)}), lists), policy});
    if (lists != Lists::kRefused) {
      keys["zip"] = any_of({reference("axes"), list_of(reference("settings"))});
      keys["cases"] = list_of(reference("case"));
    }
    json map = object_of(std::move(keys));
    map["minProperties"] = 1;
    for (const std::string& name : parameter_names(true)) {
      map["patternProperties"][fmt::format("^policy\\.{}\\.", name)] = json::object();
    }
    return map;
  }

  void add_hardware(Lists lists, json& keys) const {
    const json map = hardware(lists);
    keys["hardware"] = any_of({value_of(any_of({reference("machine"), hardware(Lists::kRefused)}), lists), map});
    for (const auto& [number, schema] : numbers_) keys["hardware." + number] = value_of(schema, lists);
    for (const char* part : {"like", "gpu", "link", "host"}) {
      keys[fmt::format("hardware.{}", part)] = map["properties"][part];
    }
    keys["hardware.host.like"] = value_of(reference("host"), lists);
    const json& pcie = map["properties"]["link"]["properties"]["pcie"];
    keys["hardware.link.pcie"] = pcie;
    for (const auto& [key, schema] : pcie["properties"].items()) keys["hardware.link.pcie." + key] = schema;
  }

  json catalogue_;
  Shapes shapes_;
  std::map<std::string, json> numbers_;  // of a machine, by dotted key
  std::map<std::string, json> maps_;     // of a run, by name
  json definitions_;
  std::vector<const policy::Descriptor*> policies_;
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

}  // namespace kvcast::api
