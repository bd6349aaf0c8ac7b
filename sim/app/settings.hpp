// Configs with --set applied, the same way in every command.
#pragma once

#include <string>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::app {

// Loads the file and puts each "a.b=v" in, in order.
config::Node load_with_settings(const std::string& path, const std::vector<std::string>& settings);

}  // namespace kvcast::app
