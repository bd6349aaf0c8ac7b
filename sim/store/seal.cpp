#include "store/seal.hpp"

#include <fstream>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "base/whole_file.hpp"
#include "store/row.hpp"

namespace kvcast::store {
namespace {

std::string name_of_seal(const std::string& table, const std::string& machine) {
  return fmt::format("checksum of {}{}{}", table, machine.empty() ? "" : ", ", machine);
}

std::string checksum_of_rows(Database& database, const std::string& table, const std::string& machine) {
  const char* const filter = machine.empty() ? "" : "WHERE machine = ?1 ";
  Statement rows(database, fmt::format("SELECT * FROM {} {}ORDER BY rowid", table, filter));
  if (!machine.empty()) rows.bind(1, machine);
  const std::vector<std::string> columns = rows.column_names();
  std::string checksums;
  while (rows.step()) {
    Row row;
    for (std::size_t i = 0; i < columns.size(); ++i) row[columns[i]] = rows.cell(static_cast<int>(i));
    checksums += checksum_of(row);
  }
  return content_hash(checksums);
}

}  // namespace

void put_metadata(Database& database, const std::string& name, std::string_view value) {
  Statement insert(database,
                   "INSERT INTO metadata VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value");
  insert.bind(1, name).bind(2, value);
  insert.step();
}

std::optional<std::string> find_metadata(Database& database, const std::string& name) {
  Statement find(database, "SELECT value FROM metadata WHERE name = ?1");
  find.bind(1, name);
  if (!find.step()) return std::nullopt;
  return find.text(0);
}

void seal(Database& database, const std::string& table, const std::string& machine) {
  put_metadata(database, name_of_seal(table, machine), checksum_of_rows(database, table, machine));
}

void verify_seal(Database& database, const std::string& table, const std::string& machine) {
  const std::optional<std::string> sealed = find_metadata(database, name_of_seal(table, machine));
  if (!sealed || *sealed == checksum_of_rows(database, table, machine)) return;
  const std::string rows = machine.empty() ? table : fmt::format("{}, {}", table, escape_controls(machine));
  throw UserError(
      {database.path(), 0, 0},
      fmt::format("the table {} is damaged: its rows do not have the checksum with which they were written; "
                  "the sweep or plan that wrote it, run again, writes it anew",
                  rows));
}

namespace {

std::string path_of_seal(const Database& database) { return database.path() + "-seal"; }

}  // namespace

void seal_file(const Database& database) {
  if (const std::string hash = database.file_hash(); !hash.empty()) write_whole_file(path_of_seal(database), hash);
}

bool is_sealed_file(Database& database) {
  const std::string path = path_of_seal(database);
  std::string sealed;
  if (is_regular(path)) std::getline(std::ifstream(path), sealed);
  if (sealed.empty()) return false;
  const Snapshot snapshot(database);
  database.query_integer("PRAGMA user_version");  // the snapshot begins when it is read
  return database.file_hash() == sealed;
}

}  // namespace kvcast::store
