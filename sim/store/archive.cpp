#include "store/archive.hpp"

#include <limits>

#include "base/quote.hpp"

namespace kvcast::store {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::pair<const char*, double> kNotFinite[] = {
    {"nan", std::numeric_limits<double>::quiet_NaN()}, {"inf", kInfinity}, {"-inf", -kInfinity}};

[[noreturn]] void refuse(const char* expected, const json& found) {
  throw std::runtime_error(fmt::format("expected {}, found {}", expected, found.dump()));
}

}  // namespace

json value_json(const std::string& text) {
  if (utf8_prefix(text) == text.size()) return text;
  std::string hex;
  for (const char c : text) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return {{"hex", hex}};
}

json value_json(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

const json& as_list(const json& list, std::optional<std::size_t> size) {
  if (!list.is_array() || (size && list.size() != *size)) refuse("a list", list);
  return list;
}

void read_value(const json& value, std::string& text) {
  if (value.is_string()) return void(text = value.get<std::string>());
  if (!value.is_object() || value.size() != 1) refuse("a text", value);
  const std::string hex = value.at("hex").get<std::string>();
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) refuse("bytes", value);
  text.clear();
  for (std::size_t i = 0; i < hex.size(); i += 2) text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
}

void read_value(const json& value, double& number) {
  if (value.is_number()) return void(number = value.get<double>());
  for (const auto& [name, other] : kNotFinite) {
    if (value == name) return void(number = other);
  }
  refuse("a number", value);
}

void read_value(const json& value, bool& flag) {
  if (!value.is_boolean()) refuse("true or false", value);
  flag = value.get<bool>();
}

void read_value(const json& value, int& number) {
  if (!value.is_number_integer()) refuse("an integer", value);
  number = value.get<int>();
}

void read_value(const json& value, std::int64_t& number) {
  if (!value.is_number_integer()) refuse("an integer", value);
  number = value.get<std::int64_t>();
}

void read_value(const json& value, Origin& origin) { origin = origin_from_name(value.get<std::string>()); }

void read_value(const json& value, Interval& interval) {
  read_value(as_list(value, 2)[0], interval.low);
  read_value(value[1], interval.high);
}

void read_value(const json& value, std::pair<std::string, std::string>& pair) {
  read_value(as_list(value, 2)[0], pair.first);
  read_value(value[1], pair.second);
}

}  // namespace kvcast::store
