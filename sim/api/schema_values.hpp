// JSON schemas of single values: numbers, quantities, names.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/hardware.hpp"
#include "config/shape.hpp"
#include "policy/policy.hpp"

namespace kvcast::api {

nlohmann::json any_of(std::vector<nlohmann::json> schemas);
nlohmann::json list_of(const nlohmann::json& items);  // at least one
// A map of these keys and no others.
nlohmann::json object_of(nlohmann::json properties);
nlohmann::json matching(const std::string& pattern);  // a text
nlohmann::json with_range(nlohmann::json schema, const nlohmann::json& low, const nlohmann::json& high);
nlohmann::json integer(const nlohmann::json& low, const nlohmann::json& high);  // 32768 or 32K

// One of the names, or the path of a file.
nlohmann::json name_or_path(const std::vector<std::string>& names);
// The same of names whose case, blanks, '-' and '_' do not matter.
nlohmann::json loose_name_or_path(const std::vector<std::string>& names);
// A framework, with or without a version.
nlohmann::json framework_name(const std::vector<std::string>& names);

// Schemas of a key, with its description, and of a map of keys.
nlohmann::json schema_of(const config::KeyShape& key);
nlohmann::json map_of(const std::vector<config::KeyShape>& keys);
nlohmann::json schema_of(const policy::Parameter& parameter);
// A number of a machine as a run changes it: a quantity, a factor, or a map with its origin; a curve's factor or
// points.
nlohmann::json schema_of(const config::ConstKnob& knob);

}  // namespace kvcast::api
