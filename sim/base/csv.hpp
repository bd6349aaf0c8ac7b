// Comma-separated values as RFC 4180 has them, and as programs write them: a byte order mark, \r\n or \n, blank lines,
// blanks around fields without quotes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast {

struct CsvRow {
  SourceLocation where;             // of its first character
  std::vector<std::string> fields;  // at least one; "" where nothing stands
  std::vector<int> columns;         // where each begins, from 1

  SourceLocation at(std::size_t field) const { return {where.file, where.line, columns.at(field)}; }
};

// The columns that the first row names.
class CsvHeader {
 public:
  // UserError where a name stands twice.
  explicit CsvHeader(const CsvRow& row);

  std::optional<std::size_t> find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name).has_value(); }
  std::size_t at(const std::string& name) const { return columns_.at(name); }  // of one that is there

  // UserError for a row of another width.
  void check(const CsvRow& row) const;

 private:
  std::map<std::string, std::size_t> columns_;
};

// All rows of a file, its header first; none where it is empty. UserError ("cannot read <what>") where it cannot be
// read, and for a quote that is not closed or does not enclose its field.
std::vector<CsvRow> read_csv(const std::string& path, const std::string& what);

}  // namespace kvcast
