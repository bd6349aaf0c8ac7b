// Parts of the schemas of configurations: metrics and their limits, and the sections of a run.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "config/shape.hpp"

namespace kvcast::api {

// A metric by its path or alias. `ordered`: one of which more or less is better.
nlohmann::json metric_names(bool ordered);
// Limits of metrics.
nlohmann::json targets();

// A map of a run ("workload", "traffic") with the maps in it and the values that a key takes in addition to its type.
nlohmann::json section_of(const config::Shapes& shapes, const std::string& title);
// The keys of maps in this one, by their names with dots: "slo.ttft".
std::map<std::string, nlohmann::json> keys_of_inner_maps(const nlohmann::json& section);

}  // namespace kvcast::api
