#include "app/settings.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "api/settings.hpp"
#include "app/exit.hpp"
#include "base/error.hpp"
#include "config/find.hpp"

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
  return api::with_settings(std::move(config), settings);
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

}  // namespace kvcast::app
