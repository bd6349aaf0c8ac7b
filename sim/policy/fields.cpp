#include "policy/fields.hpp"

#include <algorithm>

namespace kvcast::policy {
namespace {

Parameter number_or_word(std::string_view key, std::string_view word, std::string_view unit, std::string_view meaning,
                         double low, double high, const char* kind) {
  return {.key = std::string(key),
          .fallback = std::string(word),
          .unit = std::string(unit),
          .meaning = std::string(meaning),
          .low = low,
          .high = high,
          .names = {std::string(word), kind}};
}

}  // namespace

Parameter whole(std::string_view key, std::int64_t fallback, std::string_view unit, std::string_view meaning,
                double low, double high) {
  return {.key = std::string(key),
          .fallback = fallback,
          .unit = std::string(unit),
          .meaning = std::string(meaning),
          .low = low,
          .high = high};
}

Parameter real(std::string_view key, double fallback, std::string_view meaning, double low, double high) {
  return {.key = std::string(key),
          .fallback = fallback,
          .unit = "",
          .meaning = std::string(meaning),
          .low = low,
          .high = high};
}

Parameter whole_or(std::string_view key, std::string_view word, std::string_view unit, std::string_view meaning,
                   double low, double high) {
  return number_or_word(key, word, unit, meaning, low, high, "<integer>");
}

Parameter real_or(std::string_view key, std::string_view word, std::string_view meaning, double low, double high) {
  return number_or_word(key, word, "", meaning, low, high, "<number>");
}

Parameter flag(std::string_view key, bool fallback, std::string_view meaning) {
  return {.key = std::string(key), .fallback = fallback, .unit = "", .meaning = std::string(meaning)};
}

Parameter choice(std::string_view key, std::initializer_list<std::string_view> names, std::string_view meaning) {
  return choice(key, std::vector<std::string>(names.begin(), names.end()), meaning);
}

Parameter choice(std::string_view key, const std::vector<std::string>& names, std::string_view meaning) {
  return {
      .key = std::string(key), .fallback = names.front(), .unit = "", .meaning = std::string(meaning), .names = names};
}

void assign(const ParameterValues& values, const Parameter& parameter, bool& to) {
  to = parameter.names.empty() ? values.flag(parameter.key) : values.text(parameter.key) != parameter.names.front();
}
void assign(const ParameterValues& values, const Parameter& parameter, Group& to) {
  to = parse_group(values.text(parameter.key));
}
void assign(const ParameterValues& values, const Parameter& parameter, std::int64_t& to) {
  to = values.is_text(parameter.key) ? 0 : values.integer(parameter.key);
}
void assign(const ParameterValues& values, const Parameter& parameter, double& to) {
  to = values.number(parameter.key);
}
void assign(const ParameterValues& values, const Parameter& parameter, std::optional<std::int64_t>& to) {
  to = values.is_text(parameter.key) ? std::nullopt : std::optional(values.integer(parameter.key));
}
void assign(const ParameterValues& values, const Parameter& parameter, std::optional<double>& to) {
  to = values.is_text(parameter.key) ? std::nullopt : std::optional(values.number(parameter.key));
}
void assign(const ParameterValues& values, const Parameter& parameter, std::string& to) {
  to = values.text(parameter.key);
}

std::size_t index_of_choice(const ParameterValues& values, const Parameter& parameter) {
  const auto& names = parameter.names;
  return std::find(names.begin(), names.end(), values.text(parameter.key)) - names.begin();
}

}  // namespace kvcast::policy
