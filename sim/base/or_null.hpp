// JSON of a value that may be missing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace kvcast {

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace kvcast
