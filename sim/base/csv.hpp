// Reader of comma-separated values (RFC 4180) that also accepts common deviations: a byte order mark, \r\n or \n, blank
// lines, blanks around unquoted fields.
#pragma once

#include <map>
#include <memory>
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

// A row whose fields are known by the names of their columns, which the table must have.
class CsvCells {
 public:
  CsvCells(std::shared_ptr<const CsvHeader> header, CsvRow row);  // throws as CsvHeader::check
  bool has(const std::string& column) const { return header_->has(column); }
  const std::string& text(const std::string& column) const { return row_.fields[header_->at(column)]; }
  SourceLocation where(const std::string& column) const { return row_.at(header_->at(column)); }
  // Throws UserError for a field that is no number within the range.
  double number(const std::string& column, double low = 0, double high = 1e18) const;

 private:
  std::shared_ptr<const CsvHeader> header_;
  CsvRow row_;
};
// Returns the rows after the header. Throws UserError as read_csv, for an empty file and for a column that is missing.
std::vector<CsvCells> read_table(const std::string& path, const std::string& what,
                                 const std::vector<std::string>& columns);

// Returns all rows of a file, header first; none for an empty file. Throws UserError ("cannot read <what>") if it
// cannot be read, for text that is no UTF-8, and for a quote that is not closed or does not enclose its field.
std::vector<CsvRow> read_csv(const std::string& path, const std::string& what);

// Returns the row that a line without its end is; without fields if the line is blank. For files too large to hold, in
// which quotes enclose no line ends. Throws UserError as above.
CsvRow read_csv_line(const SourceLocation& where, std::string text);

}  // namespace kvcast
