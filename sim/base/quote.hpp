#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvcast {

// Bytes of the UTF-8 character at the start of text: 1 to 4, or 0 if the bytes are not a shortest-form Unicode scalar.
std::size_t utf8_length(std::string_view text);

// Bytes of text before the first one that is not UTF-8; all of them if there is none.
std::size_t utf8_prefix(std::string_view text);

// Returns the text with control characters and bytes that are no UTF-8 as \x1b: text of a file cannot command a
// terminal, and a message is always text.
std::string escape_controls(std::string_view text);

// Formats text of a file for a message: quoted, escaped as above, cut after 80 bytes.
std::string quote(std::string_view text);

}  // namespace kvcast
