// Only one block of rows is in memory.
#include "store/csv.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "store/row.hpp"

namespace kvcast::store {

namespace {

constexpr const char* kMisfit[] = {"oom.pool",         "oom.moment",        "oom.requested_for", "oom.requested_bytes",
                                   "oom.in_use_bytes", "oom.capacity_bytes"};

void add_misfit(Row& row, const result::OutOfMemory& oom) {
  const Cell cells[] = {oom.pool, oom.moment, oom.requested_for, oom.requested, oom.in_use, oom.capacity};
  for (std::size_t i = 0; i < std::size(kMisfit); ++i) row[kMisfit[i]] = cells[i];
}

std::vector<std::string> columns_of(const Store& store) {
  std::vector<std::string> columns = {"key", "status", "error", "code_version", "created_at", "wall_s"};
  for (const std::string& key : store.setting_keys()) columns.push_back(std::string(kSettingPrefix) + key);
  for (const Column& column : result_columns()) {
    if (column.name.find('.') != std::string::npos) columns.push_back(column.name);
  }
  columns.emplace_back("bottleneck");
  if (store.count(result::Status::kOom) > 0) columns.insert(columns.end(), std::begin(kMisfit), std::end(kMisfit));
  return columns;
}

bool is_formula(std::string_view field) {
  if (field.empty() || std::string_view("=+-@\t\r").find(field.front()) == std::string_view::npos) return false;
  const std::string_view digits = field.substr(field.front() == '+' ? 1 : 0);
  double number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return read.ec == std::errc::invalid_argument || read.ptr != digits.data() + digits.size();
}

}  // namespace

void write_csv_field(std::ostream& out, std::string_view field) {
  const bool formula = is_formula(field);
  if (!formula && field.find_first_of(",\"\r\n") == std::string_view::npos) {
    out << field;
    return;
  }
  out << (formula ? "\"'" : "\"");
  for (const char c : field) {
    if (c == '"') out << '"';
    out << c;
  }
  out << '"';
}

void export_csv(const Store& store, std::ostream& out) {
  const std::vector<std::string> columns = columns_of(store);
  const auto write_line = [&](const auto& text_at) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) out << ',';
      write_csv_field(out, text_at(columns[i]));
    }
    out << "\r\n";
  };
  write_line([](const std::string& column) { return column; });
  store.for_each_row([&](const Row& stored) {
    Row misfit;
    if (text_of(stored.at("status")) == status_name(result::Status::kOom)) {
      const result::Result result = result_of(stored);
      if (result.experiment.oom) add_misfit(misfit, *result.experiment.oom);
    }
    write_line([&](const std::string& column) {
      for (const Row* const row : {&stored, &std::as_const(misfit)}) {
        if (const auto found = row->find(column); found != row->end()) return text_of(found->second);
      }
      return std::string();
    });
  });
}

}  // namespace kvcast::store
