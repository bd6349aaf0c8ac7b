#include "report/view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/split.hpp>
#include <cctype>
#include <cmath>
#include <set>

#include "base/error.hpp"

namespace kvcast::report {
namespace {

using nlohmann::json;

constexpr const char* kTextKeys[] = {"model", "hardware"};
constexpr const char* kNumberKeys[] = {"context", "batch", "budget"};

int hex(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 ? c - '0' : (std::tolower(c) - 'a' + 10); }

// Decodes the format of URLSearchParams: + for a blank, % and two digits for other bytes.
std::string decoded(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() &&
                         std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                         std::isxdigit(static_cast<unsigned char>(text[i + 2]));
    out += escaped ? static_cast<char>(16 * hex(text[i + 1]) + hex(text[i + 2])) : text[i] == '+' ? ' ' : text[i];
    if (escaped) i += 2;
  }
  return out;
}

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::vector<std::string>& known) {
  throw UserError(SourceLocation{}, fmt::format("--view {}={}: unknown value", key, value), known);
}

// A number of a column as the address has it; numbers that occur in the column match by their texts.
json number_in(const Table& table, const std::string& column, const std::string& text) {
  std::set<double> numbers;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    if (const double n = table.number(r, column); !std::isnan(n)) numbers.insert(n);
  }
  std::vector<std::string> known = {"all"};
  for (const double n : numbers) {
    known.push_back(fmt::format("{}", n));
    if (known.back() == text) return n;
  }
  if (text == "all") return nullptr;
  refuse(column, text, known);
}

json text_in(const Table& table, const std::string& column, const std::string& text) {
  std::set<std::string> texts;
  for (std::size_t r = 0; r < table.rows(); ++r) texts.insert(table.text(r, column));
  if (texts.contains(text)) return text;
  if (text == "all") return nullptr;
  std::vector<std::string> known = {"all"};
  known.insert(known.end(), texts.begin(), texts.end());
  refuse(column, text, known);
}

json hidden_in(const Table& series, const std::string& text) {
  json hidden = json::array();
  std::vector<std::string> names;
  if (!text.empty()) boost::split(names, text, boost::is_any_of("|"));
  for (const std::string& name : names) hidden.push_back(text_in(series, "series", name));
  return hidden;
}

// The control's value, which is one of its options or of the metrics that it offers.
json value_of(const json& control, const std::string& key, const std::string& text) {
  if (control.contains("values_of")) {  // a number of the experiments; another one draws nothing
    const json number = json::parse(text, nullptr, false);
    if (number.is_number()) return number;
  }
  std::vector<std::string> known;
  for (const char* list : {"options", "metrics"}) {
    for (const json& option : control.value(list, json::array())) {
      const json& value = option.is_object() ? option.at("value") : option;
      known.push_back(value.is_string() ? value.get<std::string>() : value.dump());
      if (known.back() == text) return value;
    }
  }
  refuse(key, text, known);
}

void set_control(json& spec, const std::string& signal, const std::string& key, const std::string& text) {
  std::vector<std::string> known;
  const json controls = spec.at("usermeta").value("controls", json::array());
  for (const json& control : controls) {
    known.push_back(control.at("signal").get<std::string>());
    if (known.back() != signal || control.contains("rows_of")) continue;
    const json value = value_of(control, key, text);
    for (json& s : spec.at("signals")) {
      if (s.at("name") != signal) continue;
      s.erase("update");
      s["value"] = value;
    }
    if (signal != "axis" || value != "log") return;
    const json& log = spec.at("usermeta").at("log");  // the page's overrides of the scales
    for (json& scale : spec.at("scales")) {
      const auto over = log.find(scale.at("name").get<std::string>());
      if (over != log.end()) scale.update(*over);
    }
    return;
  }
  throw UserError(SourceLocation{}, fmt::format("--view {}: the figure has no such control", key), known);
}

}  // namespace

View::View(const std::string& address) {
  std::size_t from = address.starts_with('#') ? 1 : 0;
  while (from < address.size()) {
    const std::size_t to = std::min(address.find('&', from), address.size());
    const std::string part = address.substr(from, to - from);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UserError(
          fmt::format("--view {}: expected key=value as in the page's address, such as context=65536", part));
    parts_.emplace_back(decoded(part.substr(0, equals)), decoded(part.substr(equals + 1)));
    from = to + 1;
  }
}

void View::filter(Content& content) const {
  for (const auto& [key, value] : parts_) {
    const auto is_key = [&key = key](const char* name) { return key == name; };
    if (std::ranges::any_of(kTextKeys, is_key)) {
      content.defaults[key] = text_in(content.experiments, key, value);
    } else if (std::ranges::any_of(kNumberKeys, is_key)) {
      content.defaults[key] = number_in(content.experiments, key, value);
    } else if (key == "hidden") {
      content.defaults[key] = hidden_in(content.series, value);
    } else if (key.find('.') == std::string::npos) {
      throw UserError(SourceLocation{}, fmt::format("--view {}: unknown key", key),
                      {"model", "hardware", "context", "batch", "budget", "hidden", "FIGURE.CONTROL"});
    }
  }
}

void View::set_controls(std::vector<ChartFile>& figures) const {
  for (const auto& [key, value] : parts_) {
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos) continue;
    const auto figure =
        std::ranges::find_if(figures, [&key = key, dot](const ChartFile& f) { return f.name == key.substr(0, dot); });
    if (figure == figures.end()) {
      std::vector<std::string> known;
      for (const ChartFile& f : figures) known.push_back(f.name);
      throw UserError(SourceLocation{}, fmt::format("--view {}: no such figure", key), known);
    }
    set_control(figure->spec, key.substr(dot + 1), key, value);
  }
}

}  // namespace kvcast::report
