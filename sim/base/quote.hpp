#pragma once

#include <string>
#include <string_view>

namespace kvcast {

// Formats text of a file for a message: quoted, control characters escaped, cut after 80 bytes.
std::string quote(std::string_view text);

}  // namespace kvcast
