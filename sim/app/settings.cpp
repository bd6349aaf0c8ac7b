#include "app/settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "config/run.hpp"

namespace kvcast::app {

config::Node load_with_settings(const std::string& path, const std::vector<std::string>& settings) {
  config::Node config = config::load_yaml(path);
  for (const std::string& setting : settings) {
    const auto [key, value] = config::parse_setting(setting);
    config = config.with(key, value);
  }
  return config;
}

void refuse_overridden(const config::Node& config, const std::vector<std::string>& settings) {
  if (config.find("sweep") == nullptr) return;
  const auto points = config::expand_sweep(config);
  for (const std::string& setting : settings) {
    const std::string key = config::parse_setting(setting).first;
    if (key == "sweep" || key.starts_with("sweep.")) continue;
    // A text that no file holds: where it changes nothing, no value does.
    const auto changed = config::expand_sweep(config.with(key, config::parse_setting(key + "=overridden?").second));
    const auto same = [](const config::SweepPoint& a, const config::SweepPoint& b) {
      return a.config.canonical() == b.config.canonical();
    };
    if (!std::equal(points.begin(), points.end(), changed.begin(), changed.end(), same)) continue;
    throw UserError(config.key_where("sweep"),
                    fmt::format("--set {}: the sweep gives \"{}\" values of its own in all of its experiments; change "
                                "them in the file",
                                setting, key));
  }
}

}  // namespace kvcast::app
