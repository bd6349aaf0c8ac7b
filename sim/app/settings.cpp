#include "app/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "app/exit.hpp"
#include "base/error.hpp"
#include "config/find.hpp"
#include "config/sweep.hpp"

namespace kvcast::app {

void add_settings(CLI::App& command, std::vector<std::string>& settings, const std::string& help) {
  command.add_option("--set", settings, help + "; may be repeated")->allow_extra_args(false)->option_text("KEY=VALUE");
}

CLI::Validator has_text() {
  return {[](const std::string& text) { return text.empty() ? std::string("is empty") : std::string(); }, ""};
}

namespace {

std::string text_of_input() {
  std::string text;
  std::array<char, 1 << 14> part{};
  while (const std::size_t read = std::fread(part.data(), 1, part.size(), stdin)) text.append(part.data(), read);
  return text;
}

}  // namespace

config::Node load_with_settings(const std::string& path, const std::vector<std::string>& settings) {
  config::Node config = path == "-" ? config::parse_yaml(text_of_input(), "standard input") : config::load_yaml(path);
  for (const std::string& setting : settings) {
    const auto [key, value] = config::parse_setting(setting);
    config = config.with(key, value);
  }
  return config;
}

int for_each_config(const std::string& folder, const std::function<void(const std::string&)>& function) {
  int result = 0;
  for (const std::string& file : config::config_files(folder)) {
    try {
      function(file);
    } catch (const UserError& error) {
      result = kInputIsWrong;
      std::fflush(stdout);
      fmt::print(stderr, "kvcast: {}\n", error.what());
    }
  }
  return result;
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

}  // namespace kvcast::app
