// Starting other programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kvcast::app {

// A program beside this executable, or the one that was asked for; nothing where there is no such file.
std::optional<std::string> find_program(const std::string& name, const std::string& asked_for);

// A program on the PATH. UserError names the Debian package where it is not installed.
std::string program_on_path(const std::string& name, const std::string& package);

// Runs it with our output and waits. Its exit code; 128 + signal where a signal ended it. UserError where it cannot be
// started.
int run_program(const std::string& path, const std::vector<std::string>& arguments);

}  // namespace kvcast::app
