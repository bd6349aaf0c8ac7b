// Two passes over the store: the first finds the columns, the second writes. Only one block of rows is in memory.
#include "store/csv.hpp"

#include <map>
#include <set>
#include <string>

#include "store/flatten.hpp"

namespace kvcast::store {

namespace {

std::vector<Column> columns_of(const Record& record) {
  std::vector<Column> columns = flatten(record.config, "config");
  std::vector<Column> result = flatten(record.result, "result");
  columns.insert(columns.end(), std::make_move_iterator(result.begin()), std::make_move_iterator(result.end()));
  return columns;
}

std::string cell(const nlohmann::json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump();  // the shortest text that reads back as the same number
}

}  // namespace

void write_csv_field(std::ostream& out, std::string_view field) {
  if (field.find_first_of(",\"\r\n") == std::string_view::npos) {
    out << field;
    return;
  }
  out << '"';
  for (const char c : field) {
    if (c == '"') out << '"';
    out << c;
  }
  out << '"';
}

void export_csv(const Store& store, std::ostream& out) {
  std::set<std::string> names;
  store.for_each([&](const Record& record) {
    for (const Column& column : columns_of(record)) names.insert(column.name);
  });
  out << "key,status,code_version,created_at,wall_s";
  for (const std::string& name : names) {
    out << ',';
    write_csv_field(out, name);
  }
  out << "\r\n";
  store.for_each([&](const Record& record) {
    std::map<std::string, std::string> cells;
    for (const Column& column : columns_of(record)) cells[column.name] = cell(column.value);
    for (const std::string& field : {record.key, std::string(status_name(record.status)), record.code_version}) {
      write_csv_field(out, field);
      out << ',';
    }
    out << record.created_at << ',' << nlohmann::json(record.wall_s).dump();
    for (const std::string& name : names) {
      out << ',';
      const auto found = cells.find(name);
      if (found != cells.end()) write_csv_field(out, found->second);
    }
    out << "\r\n";
  });
}

}  // namespace kvcast::store
