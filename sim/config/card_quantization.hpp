// Quantizations of published checkpoints: `quantization_config` of a config.json, `quantization` of
// hf_quant_config.json.
#pragma once

#include <string>
#include <string_view>

#include "config/yaml.hpp"

namespace kvcast::config {

// The name of a quantization in the table of architectures: its method ("fp8"), or the type and bits of its weights
// ("int4"). Empty if the map states neither.
std::string quantization_of(const Node& map);

// Returns whether the map excludes matrices in whose names `part` stands, such as "attn".
bool leaves(const Node& map, std::string_view part);

}  // namespace kvcast::config
