#include "base/quote.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcast {

std::string escape_controls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::size_t length = std::min(text.size(), kLongest);
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (length < text.size() && length > 0 && continues(length)) --length;  // never splits a UTF-8 character
  return fmt::format("\"{}{}\"", escape_controls(text.substr(0, length)), text.size() > length ? "..." : "");
}

}  // namespace kvcast
