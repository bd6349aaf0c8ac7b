#pragma once

#include <string>
#include <string_view>

namespace kvcast {

// Returns the text with its control characters as \x1b, so that text of a file cannot command a terminal.
std::string escape_controls(std::string_view text);

// Formats text of a file for a message: quoted, control characters escaped, cut after 80 bytes.
std::string quote(std::string_view text);

}  // namespace kvcast
