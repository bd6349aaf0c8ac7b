// Lookup of files under configs/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast::config {

// Finds configs/<folder>/<name>.yaml from the working directory, then from the source tree; otherwise the file there
// whose `title:` or `aliases:` contain the name, ignoring case, '-', '_' and spaces if there is no exact match. A name
// with '/' or ending in .yaml is a path relative to these. Throws UserError with the list of existing names, and for an
// alias that several files claim.
std::string find_config(const std::string& folder, const std::string& name, const SourceLocation& asked_at);

// The same without aliases and without the error; returns nothing for a name (not a path) that has no file.
std::optional<std::string> find_config_if_any(const std::string& folder, const std::string& name,
                                              const SourceLocation& asked_at);

// Returns the path of configs/<below> from the working directory, then from the source tree; nothing if there is none.
std::optional<std::string> find_file(const std::string& below);

// The YAML files of configs/<folder>, by name.
std::vector<std::string> config_files(const std::string& folder);

}  // namespace kvcast::config
