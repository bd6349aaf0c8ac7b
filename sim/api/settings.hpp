// Configurations with some of their keys changed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::api {

// A configuration that is no text: its errors have no location. Texts are as those of YAML without quotes.
config::Node node_of(const nlohmann::ordered_json& value);

// Applies each "a.b=v" in order.
config::Node with_settings(config::Node config, const std::vector<std::string>& settings);

// Throws UserError for a setting that changes nothing because the sweep sets its key at every point.
void refuse_overridden(const config::Node& config, const std::vector<std::string>& settings);

}  // namespace kvcast::api
