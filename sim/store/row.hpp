// Converts a result to one row of the table `experiments` (named cells) and back. docs/results.md describes the
// columns.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "result/result.hpp"

namespace kvcast::store {

// A value as SQLite stores it; monostate is NULL.
using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;
// The same without a copy of the text, in the same order of types.
using CellView = std::variant<std::monostate, std::int64_t, double, std::string_view>;
Cell owned(const CellView& cell);
std::string text_of(const Cell& cell);  // as a user would write it; empty for NULL
// Cells by column. A missing column is NULL.
using Row = std::map<std::string, Cell, std::less<>>;

inline constexpr std::string_view kSettingPrefix = "config.";  // prefix of the columns of settings

struct Column {
  std::string name;
  std::string_view type;  // as declared: INTEGER, REAL, TEXT
};
// Columns that every row can have, in the table's order: those of the subject and the outcome, then the metrics. A
// metric has a column named by its path and, if it can have an interval, PATH.low, PATH.high and PATH.origin.
const std::vector<Column>& result_columns();

Row row_of(const result::Result& result);
// Returns the complete result that row_of() converted. Intervals, origins and the bottleneck are not read but follow
// from the parts. Throws std::exception for cells that row_of() cannot have written.
result::Result result_of(const Row& row);

// A row as JSON, texts that are not UTF-8 and numbers that are not finite included (store/archive.hpp), and back.
nlohmann::json row_json(const Row& row);
Row row_of_json(const nlohmann::json& json);

inline constexpr std::string_view kChecksum = "checksum";  // the column of checksum_of()
// A content hash of all cells except the checksum's own. A row read back has the hash of the row written.
std::string checksum_of(const Row& row);
// The text that is hashed, cell by cell in alphabetical order of the columns.
void append_cell(std::string& text, std::string_view column, const CellView& cell);

}  // namespace kvcast::store
