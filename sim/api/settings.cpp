#include "api/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "config/sweep.hpp"

namespace kvcast::api {

config::Node node_of(const nlohmann::ordered_json& value) {
  if (value.is_null()) return config::Node::null({});
  if (value.is_array()) {
    std::vector<config::Node> items;
    for (const auto& item : value) items.push_back(node_of(item));
    return config::Node::list(std::move(items), {});
  }
  if (value.is_object()) {
    std::vector<std::pair<std::string, config::Node>> entries;
    for (const auto& [key, item] : value.items()) entries.emplace_back(key, node_of(item));
    return config::Node::map(std::move(entries), {});
  }
  if (!value.is_string()) return config::Node::scalar(value.dump(), {});
  const auto text = value.get<std::string>();
  const bool is_count = text.size() > 1 && (text.back() == 'K' || text.back() == 'M') &&
                        text.find_first_not_of("0123456789") == text.size() - 1;
  return config::Node::scalar(is_count ? config::parse_yaml(text, "").text() : text, {});
}

config::Node with_settings(config::Node config, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const auto [key, value] = config::parse_setting(setting);
    config = config.with(key, value);
  }
  return config;
}

namespace {

bool are_same(const config::SweepGrid& a, const config::SweepGrid& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a.point(i).config.canonical() != b.point(i).config.canonical()) return false;
  }
  return true;
}

}  // namespace

void refuse_overridden(const config::Node& config, const std::vector<std::string>& settings) {
  if (config.find("sweep") == nullptr || settings.empty()) return;
  const config::SweepGrid points(config);
  for (const std::string& setting : settings) {
    const std::string key = config::parse_setting(setting).first;
    if (key == "sweep" || key.starts_with("sweep.")) continue;
    // Sets a text that no file contains: if that changes nothing, no value does.
    const config::SweepGrid changed(config.with(key, config::parse_setting(key + "=overridden?").second));
    if (!are_same(points, changed)) continue;
    // The sweep sets the key itself, or the whole policy or machine that it belongs to.
    const auto values = points.point(0).values;
    const bool itself = std::ranges::any_of(values, [&](const auto& v) { return v.first == key; });
    throw UserError(config.key_where("sweep"),
                    fmt::format("--set {} changes nothing: the sweep sets \"{}\" in all of its experiments; change it "
                                "in the file",
                                setting, itself ? key : key.substr(0, key.find('.'))));
  }
}

}  // namespace kvcast::api
