#include "app/settings.hpp"

namespace kvcast::app {

config::Node load_with_settings(const std::string& path, const std::vector<std::string>& settings) {
  config::Node config = config::load_yaml(path);
  for (const std::string& setting : settings) {
    const auto [key, value] = config::parse_setting(setting);
    config = config.with(key, value);
  }
  return config;
}

}  // namespace kvcast::app
