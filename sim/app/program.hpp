// Runs other programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kvcast::app {

// Returns the program next to this executable, or the requested one; nothing if there is no such file.
std::optional<std::string> find_program(const std::string& name, const std::string& asked_for);

// Returns a program on the PATH. Throws UserError naming the Debian package if it is not installed.
std::string program_on_path(const std::string& name, const std::string& package);

// Runs a program with our output and waits. Returns its exit code; 128 + signal if a signal ended it. Throws UserError
// if it cannot be started.
int run_program(const std::string& path, const std::vector<std::string>& arguments);

}  // namespace kvcast::app
