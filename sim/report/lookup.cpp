#include "report/lookup.hpp"

#include <charconv>
#include <limits>

namespace kvcast::report {

using nlohmann::json;

const json* find_path(const json& value, const std::string& path) {
  if (!value.is_object()) return nullptr;
  const auto whole = value.find(path);
  if (whole != value.end()) return &*whole;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const auto inner = value.find(path.substr(0, dot));
    if (inner == value.end()) continue;
    if (const json* found = find_path(*inner, path.substr(dot + 1))) return found;
  }
  return nullptr;
}

double as_number(const json& scalar) {
  if (scalar.is_number()) return scalar.get<double>();
  double number = std::numeric_limits<double>::quiet_NaN();
  if (scalar.is_string()) {
    const std::string& text = scalar.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::numeric_limits<double>::quiet_NaN();
  }
  return number;
}

std::string as_text(const json& scalar) {
  if (scalar.is_string()) return scalar.get<std::string>();
  if (scalar.is_number() || scalar.is_boolean()) return scalar.dump();
  return "";
}

double number_at(const json& value, const std::string& path) {
  const json* found = find_path(value, path);
  return found == nullptr ? std::numeric_limits<double>::quiet_NaN() : as_number(*found);
}

std::string text_at(const json& value, const std::string& path) {
  const json* found = find_path(value, path);
  return found == nullptr ? "" : as_text(*found);
}

}  // namespace kvcast::report
