// Small helpers on text that the readers of this room share.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::config {

// Bytes of the UTF-8 character at the start of text: 1 to 4, or 0 where the bytes are no shortest-form Unicode scalar.
std::size_t utf8_length(std::string_view text);

// The text as a JSON string, quotes included.
std::string json_string(std::string_view text);

// Appends the bits of a number and a blank: exact, and ten times as fast as decimals, for texts that are compared and
// not read.
void put_bits(std::string& text, double number);

// At most about 60 bytes of a user's text on one line, for messages.
std::string shorten(std::string_view text);

// The known name that is close to the one found; null where none is.
const std::string* nearest_name(std::string_view found, const std::vector<std::string>& known);

// ` (did you mean "budget"?)` when a known name is close to the one found, else nothing. Appends to a message.
std::string did_you_mean(std::string_view found, const std::vector<std::string>& known);

}  // namespace kvcast::config
