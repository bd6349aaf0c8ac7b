// Only one block of rows is in memory.
#include "store/csv.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "store/row.hpp"

namespace kvcast::store {

namespace {

// Fields of `oom` in a row's parts. Each becomes a column named oom.FIELD.
constexpr const char* kMisfit[] = {"pool",         "moment",        "requested_for", "requested_bytes",
                                   "in_use_bytes", "capacity_bytes"};

std::vector<std::string> columns_of(const std::vector<std::string>& setting_keys) {
  std::vector<std::string> columns = {"key", "status", "error", "code_version", "created_at", "wall_s"};
  for (const std::string& key : setting_keys) columns.push_back(std::string(kSettingPrefix) + key);
  for (const Column& column : result_columns()) {
    if (column.name.find('.') != std::string::npos) columns.push_back(column.name);
  }
  columns.emplace_back("bottleneck");
  return columns;
}

// Returns the text of each field of kMisfit; empty texts if the result fitted in memory.
std::vector<std::string> misfit_of(const std::string& parts) {
  const nlohmann::json all = nlohmann::json::parse(parts);
  const auto found = all.find("oom");
  const bool any = found != all.end() && found->is_object();
  std::vector<std::string> texts;
  for (const char* const part : kMisfit) {
    const nlohmann::json value = any ? found->value(part, nlohmann::json()) : nlohmann::json();
    texts.push_back(value.is_string()   ? value.get<std::string>()
                    : value.is_number() ? text_of(Cell(value.get<double>()))
                                        : "");
  }
  return texts;
}

bool is_formula(std::string_view field) {
  if (field.empty() || std::string_view("=+-@\t\r").find(field.front()) == std::string_view::npos) return false;
  const std::string_view digits = field.substr(field.front() == '+' ? 1 : 0);
  double number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return read.ec == std::errc::invalid_argument || read.ptr != digits.data() + digits.size();
}

void append_field(std::string& line, std::string_view field) {
  const bool formula = is_formula(field);
  if (!formula && field.find_first_of(",\"\r\n") == std::string_view::npos) {
    line += field;
    return;
  }
  line += formula ? "\"'" : "\"";
  for (const char c : field) {
    if (c == '"') line += '"';
    line += c;
  }
  line += '"';
}

// Numbers need neither quotes nor an apostrophe.
void append_cell_text(std::string& line, const CellView& cell) {
  if (const auto* text = std::get_if<std::string_view>(&cell)) append_field(line, *text);
  char digits[32];
  if (const auto* number = std::get_if<double>(&cell))
    line.append(digits, fmt::format_to(digits, FMT_COMPILE("{}"), *number));
  if (const auto* integer = std::get_if<std::int64_t>(&cell))
    line.append(digits, fmt::format_to(digits, FMT_COMPILE("{}"), *integer));
}

}  // namespace

void write_csv_field(std::ostream& out, std::string_view field) {
  std::string text;
  append_field(text, field);
  out << text;
}

void export_csv(const Store& store, std::ostream& out, const std::vector<std::string>& setting_keys) {
  std::vector<std::string> columns = columns_of(setting_keys.empty() ? store.settings().keys() : setting_keys);
  const bool misfits = store.count(result::Status::kOom) > 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    out << (i > 0 ? "," : "");
    write_csv_field(out, columns[i]);
  }
  for (const char* const part : kMisfit) {
    if (misfits) out << ",oom." << part;
  }
  out << "\r\n";
  const std::size_t named = columns.size();
  const auto status = static_cast<std::size_t>(std::ranges::find(columns, "status") - columns.begin());
  const std::vector<std::string> fits(std::size(kMisfit));
  columns.emplace_back("parts");
  const auto line_of = [&](std::span<const CellView> cells) {
    std::string line;
    for (std::size_t i = 0; i < named; ++i) {
      if (i > 0) line += ',';
      append_cell_text(line, cells[i]);
    }
    if (misfits) {
      // Parts are long: those of rows that fit are not parsed.
      const auto* const how = std::get_if<std::string_view>(&cells[status]);
      const auto* const parts = std::get_if<std::string_view>(&cells.back());
      const bool fit = how == nullptr || *how != status_name(result::Status::kOom) || parts == nullptr;
      for (const std::string& text : fit ? fits : misfit_of(std::string(*parts))) {
        line += ',';
        append_field(line, text);
      }
    }
    return line += "\r\n";
  };
  store.for_each_text(columns, line_of, [&out](const std::string& line) { out << line; });
}

}  // namespace kvcast::store
