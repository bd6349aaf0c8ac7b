// Recognises a sweep by all that its plan follows from, so that one that is finished need not be planned again.
#pragma once

#include <optional>
#include <string>

#include "config/yaml.hpp"

namespace kvcast::app {

// A hash of the sweep, of the program, and of the states of all files of configs/ and traces/ in the data folder and
// of those that these name: equal ones have equal plans. None if the sweep may depend on other files (a text of it is a
// path, or the working directory has such folders of its own), or if files changed a moment ago.
std::optional<std::string> planned_from(const config::Node& sweep);

}  // namespace kvcast::app
