// Configurations with --set applied, and lists of files under configs/, the same way in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::app {

// Adds --set KEY=VALUE, which may be repeated; `help` says what it changes.
void add_settings(CLI::App& command, std::vector<std::string>& settings, const std::string& help);

// Refuses an empty value, such as an unset variable of a shell.
CLI::Validator has_text();

// Loads the file and applies each "a.b=v" in order.
config::Node load_with_settings(const std::string& path, const std::vector<std::string>& settings);

// Calls the function with each file of configs/FOLDER, by name. A file that it throws UserError for is named on stderr
// and does not hide the others. Returns the command's exit code.
int for_each_config(const std::string& folder, const std::function<void(const std::string&)>& function);

}  // namespace kvcast::app
