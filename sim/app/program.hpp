// Starting another program of this build.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kvcast::app {

// A program beside this executable, or the one that was asked for; nothing where there is no such file.
std::optional<std::string> find_program(const std::string& name, const std::string& asked_for);

// Runs it with our output and waits. Its exit code; 128 + signal where a signal ended it. UserError where it cannot be
// started.
int run_program(const std::string& path, const std::vector<std::string>& arguments);

}  // namespace kvcast::app
