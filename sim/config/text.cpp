#include "config/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace kvcast::config {
namespace {

char small_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Number of letters, whatever their case, inserted, removed, replaced or exchanged with their neighbour, row by row
// (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (small_letter(a[i - 1]) == small_letter(b[j - 1]) ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && small_letter(a[i - 1]) == small_letter(b[j - 2]) &&
                             small_letter(a[i - 2]) == small_letter(b[j - 1]);
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

void put_bits(std::string& text, double number) {
  constexpr std::size_t kDigits = 16;
  char digits[kDigits + 1];
  const auto [end, failure] = std::to_chars(digits, digits + kDigits, std::bit_cast<std::uint64_t>(number), 16);
  *end = ' ';
  text.append(digits, end + 1);
}

std::string shorten(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::size_t end = std::min(text.size(), kLongest);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;  // whole characters
  std::string shown(text.substr(0, end));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return end < text.size() ? shown + "..." : shown;
}

std::string loose_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ') out += small_letter(c);
  }
  return out;
}

const std::string* nearest_name(std::string_view found, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 64;  // no key is longer, and the cost of the distance is the product of the lengths
  if (found.size() > kLongest) return nullptr;
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, found.size() / 3) + 1;
  for (const std::string& name : known) {
    if (name.size() > kLongest) continue;
    const std::size_t distance = edit_distance(found, name);
    if (distance < least) {
      least = distance;
      nearest = &name;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view found, const std::vector<std::string>& known) {
  const std::string* nearest = nearest_name(found, known);
  return nearest == nullptr ? "" : fmt::format(" (did you mean \"{}\"?)", *nearest);
}

}  // namespace kvcast::config
