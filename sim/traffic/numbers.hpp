// Numbers in the fields of traces.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "config/framework.hpp"

namespace kvcast::traffic {

// Returns the finite number that is the whole of the text; nothing for any other text.
inline std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failure == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// Reads a whole number of tokens, also as 12.0. where(): its location, for the UserError otherwise.
template <typename Where>
std::int64_t tokens_of(std::string_view text, std::string_view name, std::int64_t least, const Where& where) {
  const std::optional<double> value = number_in(text);
  if (!value || *value < static_cast<double>(least) || *value > static_cast<double>(config::kMaxTokens) ||
      *value != std::floor(*value)) {
    throw UserError(where(), fmt::format("{}: expected a whole number between {} and {}, found {}", name, least,
                                         config::kMaxTokens, quote(text)));
  }
  return static_cast<std::int64_t>(*value);
}

}  // namespace kvcast::traffic
