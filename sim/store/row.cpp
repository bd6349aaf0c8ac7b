#include "store/row.hpp"

#include <charconv>
#include <cmath>
#include <span>
#include <stdexcept>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "policy/category.hpp"
#include "result/metric.hpp"
#include "store/archive.hpp"
#include "store/parts.hpp"

namespace kvcast::store {
namespace {

using result::Metric;
using result::Result;
using result::Subject;

constexpr std::pair<const char*, std::string Subject::*> kTexts[] = {
    {"name", &Subject::name}, {"model", &Subject::model},   {"hardware", &Subject::hardware},
    {"host", &Subject::host}, {"policy", &Subject::policy}, {"trace", &Subject::trace},
};
constexpr const char* kCategory = "policy_category";
constexpr std::pair<const char*, std::int64_t Subject::*> kIntegers[] = {
    {"prompt_tokens", &Subject::prompt_tokens},
    {"decode_tokens", &Subject::decode_tokens},
    {"batch", &Subject::batch},
};
// Metrics that are absent if the policy's prompt attention is dense.
constexpr std::pair<const char*, std::optional<double> result::Accuracy::*> kOptional[] = {
    {"accuracy.prompt_density", &result::Accuracy::prompt_density},
    {"accuracy.prompt_recall_mass_mean", &result::Accuracy::prompt_recall_mass_mean},
};
// Metrics that are stored as integers.
constexpr std::pair<const char*, std::int64_t result::Experiment::*> kCounts[] = {
    {"engine.ops", &result::Experiment::engine_ops},
    {"engine.events", &result::Experiment::engine_events},
};

std::vector<Column> make_columns() {
  std::vector<Column> columns = {{"status", "TEXT"}, {"error", "TEXT"}};
  for (const auto& [name, member] : kTexts) columns.push_back({name, "TEXT"});
  columns.push_back({kCategory, "TEXT"});
  for (const auto& [name, member] : kIntegers) columns.push_back({name, "INTEGER"});
  columns.push_back({"wall_s", "REAL"});
  for (const Metric& metric : result::all_metrics()) {
    columns.push_back({metric.path, "REAL"});
    if (!has_interval(metric)) continue;
    columns.push_back({metric.path + ".low", "REAL"});
    columns.push_back({metric.path + ".high", "REAL"});
    columns.push_back({metric.path + ".origin", "TEXT"});
  }
  columns.push_back({"serving.state", "TEXT"});
  columns.push_back({"bottleneck", "TEXT"});
  columns.push_back({"parts", "TEXT"});
  return columns;
}

Cell setting_cell(const result::SettingValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return result::text_of(value);
}

result::SettingValue setting_of(const std::string& column, const Cell& cell) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return *integer;
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) throw std::runtime_error(column + " is NULL");
  if (*text == "true" || *text == "false") return *text == "true";
  return *text;
}

void add_metric(Row& row, const Result& result, const Metric& metric) {
  const auto number = value(result, metric);
  if (!number || std::isnan(*number)) return;  // SQLite has no NaN; `parts` names it
  row[metric.path] = *number;
  if (!has_interval(metric)) return;
  row[metric.path + ".origin"] = std::string(origin_name(origin(result, metric)));
  if (const auto range = interval(result, metric)) {
    row[metric.path + ".low"] = range->low;
    row[metric.path + ".high"] = range->high;
  }
}

const Cell* find(const Row& row, std::string_view column) {
  const auto found = row.find(column);
  return found == row.end() || std::holds_alternative<std::monostate>(found->second) ? nullptr : &found->second;
}

template <class T>
T get(const Row& row, std::string_view column) {
  const Cell* const cell = find(row, column);
  const T* const value = cell == nullptr ? nullptr : std::get_if<T>(cell);
  if (value == nullptr) throw std::runtime_error(fmt::format("{} has no value, or one of another type", column));
  return *value;
}

void read_subject(const Row& row, Subject& subject) {
  for (const auto& [name, member] : kTexts) subject.*member = get<std::string>(row, name);
  const auto category = policy::find_category(get<std::string>(row, kCategory));
  if (!category) throw std::runtime_error("the category is that of no policy");
  subject.category = *category;
  for (const auto& [name, member] : kIntegers) subject.*member = get<std::int64_t>(row, name);
  for (const auto& [column, cell] : row) {
    if (!column.starts_with(kSettingPrefix) || std::holds_alternative<std::monostate>(cell)) continue;
    subject.settings.push_back({column.substr(kSettingPrefix.size()), setting_of(column, cell)});
  }
}

// A number where the result has a field for it, and only there.
void read_metric(const Row& row, Result& result, const Metric& metric) {
  const bool stored = find(row, metric.path) != nullptr;
  if (metric.field == nullptr) return;  // follows from other fields
  double* const field = metric.field(result, metric.which);
  if (field == nullptr && stored) throw std::runtime_error(metric.path + " has a value, which this result cannot have");
  if (field == nullptr || (!stored && std::isnan(*field))) return;
  *field = get<double>(row, metric.path);
}

// Writes a number as "{:a}" does, which takes several times as long.
std::string_view hexadecimal(std::span<char, 40> digits, double number) {
  if (!std::isnormal(number) && number != 0) return {digits.data(), fmt::format_to(digits.data(), "{:a}", number)};
  char* at = digits.data();
  if (std::signbit(number)) *at++ = '-';
  *at++ = '0', *at++ = 'x';
  at = std::to_chars(at, digits.data() + digits.size(), std::abs(number), std::chars_format::hex).ptr;
  return {digits.data(), at};
}

}  // namespace

const std::vector<Column>& result_columns() {
  static const std::vector<Column> columns = make_columns();
  return columns;
}

Cell owned(const CellView& cell) {
  if (const auto* text = std::get_if<std::string_view>(&cell)) return std::string(*text);
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return *integer;
  return {};
}

std::string text_of(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<double>(&cell)) return fmt::format("{}", *number);
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *integer);
  return "";
}

Row row_of(const Result& result) {
  Row row;
  row["key"] = result.key;
  row["status"] = std::string(status_name(result.status));
  row["error"] = result.error;
  for (const auto& [name, member] : kTexts) row[name] = result.subject.*member;
  row[kCategory] = std::string(policy::name(result.subject.category));
  for (const auto& [name, member] : kIntegers) row[name] = result.subject.*member;
  row["wall_s"] = result.wall_s;
  for (const result::Setting& setting : result.subject.settings) {
    row[std::string(kSettingPrefix) + setting.key] = setting_cell(setting.value);
  }
  for (const Metric& metric : result::all_metrics()) add_metric(row, result, metric);
  if (result.has_times()) row["bottleneck"] = std::string(result::bottleneck(result.experiment.step));
  if (result.service) row["serving.state"] = std::string(serving::state_name(result.service->summary.state));
  row["parts"] = parts_text(result);
  return row;
}

Result result_of(const Row& row) {
  Result result;
  result.key = get<std::string>(row, "key");
  const auto status = result::status_from_name(get<std::string>(row, "status"));
  if (!status) throw std::runtime_error("the status is none of ok, oom, failed");
  result.status = *status;
  result.error = get<std::string>(row, "error");
  result.wall_s = get<double>(row, "wall_s");
  read_subject(row, result.subject);
  for (const auto& [name, member] : kOptional) {
    if (find(row, name) != nullptr) (result.accuracy.*member).emplace();
  }
  read_parts(get<std::string>(row, "parts"), result);
  for (const Metric& metric : result::all_metrics()) read_metric(row, result, metric);
  for (const auto& [name, member] : kCounts) {
    result.experiment.*member = static_cast<std::int64_t>(get<double>(row, name));
  }
  return result;
}

void append_cell(std::string& text, std::string_view column, const CellView& cell) {
  if (column == kChecksum || std::holds_alternative<std::monostate>(cell)) return;
  char digits[40];
  std::string_view value;
  if (const auto* number = std::get_if<double>(&cell)) {
    if (std::isnan(*number)) return;             // SQLite keeps it as NULL
    value = hexadecimal(digits, *number + 0.0);  // and -0 as 0
  } else if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
    value = {digits, std::to_chars(digits, std::end(digits), *integer).ptr};
  } else {
    value = std::get<std::string_view>(cell);
  }
  text.append(column).append({' ', static_cast<char>('0' + cell.index()), ' '});
  char size[20];
  text.append(size, std::to_chars(size, std::end(size), value.size()).ptr);
  text.append(1, ':').append(value).append(1, '\n');
}

std::string checksum_of(const Row& row) {
  std::string text;
  for (const auto& [column, cell] : row) {
    append_cell(text, column, std::visit([](const auto& value) { return CellView(value); }, cell));
  }
  return content_hash(text);
}

nlohmann::json row_json(const Row& row) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [column, cell] : row) {
    if (const auto* text = std::get_if<std::string>(&cell)) out[column] = value_json(*text);
    if (const auto* number = std::get_if<double>(&cell)) out[column] = value_json(*number);
    if (const auto* integer = std::get_if<std::int64_t>(&cell)) out[column] = *integer;
  }
  return out;
}

Row row_of_json(const nlohmann::json& json) {
  Row row;
  for (const auto& [column, value] : json.items()) {
    if (value.is_number_integer()) {
      row[column] = value.get<std::int64_t>();
    } else if (value.is_number() || result::find_metric(column) != nullptr) {
      double number = 0;
      read_value(value, number);
      row[column] = number;
    } else {
      std::string text;
      read_value(value, text);
      row[column] = text;
    }
  }
  return row;
}

}  // namespace kvcast::store
