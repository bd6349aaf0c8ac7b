// Text helpers shared by the readers of this module.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::config {

// Returns the text as a JSON string, quotes included.
std::string json_string(std::string_view text);

// Appends the bits of a number and a blank: exact, and ten times as fast as decimals, for texts that are compared and
// not read.
void put_bits(std::string& text, double number);

// Shortens a user's text to at most about 60 bytes on one line, for messages.
std::string shorten(std::string_view text);

// Returns a name without what users spell differently: case, hyphens, underscores and spaces.
std::string loose_name(std::string_view name);

// Returns the known name closest to the one found, whatever their case; null if none is close.
const std::string* nearest_name(std::string_view found, const std::vector<std::string>& known);

// Returns ` (did you mean "budget"?)` if a known name is close to the one found, otherwise nothing. Appended to
// messages.
std::string did_you_mean(std::string_view found, const std::vector<std::string>& known);

}  // namespace kvcast::config
