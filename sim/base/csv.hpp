// Reader of comma-separated values (RFC 4180) that also accepts common deviations: a byte order mark, \r\n or \n, blank
// lines, blanks around unquoted fields.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast {

struct CsvRow {
  SourceLocation where;             // location of the row's first character
  std::vector<std::string> fields;  // at least one; "" for an empty field
  std::vector<int> columns;         // column at which each field begins, from 1

  SourceLocation at(std::size_t field) const { return {where.file, where.line, columns.at(field)}; }
};

// Index of the columns named in the first row.
class CsvHeader {
 public:
  // Throws UserError for a name that occurs twice.
  explicit CsvHeader(const CsvRow& row);

  std::optional<std::size_t> find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name).has_value(); }
  std::size_t at(const std::string& name) const { return columns_.at(name); }  // `name` must exist

  // Throws UserError for a row of another width.
  void check(const CsvRow& row) const;

 private:
  std::map<std::string, std::size_t> columns_;
};

// Returns all rows of a file, header first; none for an empty file. Throws UserError ("cannot read <what>") if it
// cannot be read, for text that is no UTF-8, and for a quote that is not closed or does not enclose its field.
std::vector<CsvRow> read_csv(const std::string& path, const std::string& what);

// Returns the row that a line without its end is; without fields if the line is blank. For files too large to hold, in
// which quotes enclose no line ends. Throws UserError as above.
CsvRow read_csv_line(const SourceLocation& where, std::string text);

}  // namespace kvcast
