// Published accuracy tables as rows of a CSV file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast::score {

// Columns paper, table, model, benchmark, context, task, method, budget, budget_unit, value; unit and held_out are
// optional, others are ignored.
struct PublishedRow {
  SourceLocation where;
  std::string paper, table, model, benchmark, context, task, method, budget, budget_unit;
  double value = 0;       // points out of 100
  bool held_out = false;  // column held_out, true or false, if there is one: excluded from fits
};

// A row that is not used, and why. The location is that of the field at fault, or of the row.
struct LeftOutRow {
  SourceLocation where;
  std::string reason;
};

// Rows without a score are appended to `left_out`, if it is given: their value is not a number from 0 to 100, or has
// another unit (count, text, ...). Throws UserError if the file cannot be read, columns are missing or duplicated, or a
// line has another width; and if no row has a score, at the first of them with its reason.
std::vector<PublishedRow> read_table(const std::string& path, std::vector<LeftOutRow>* left_out = nullptr);

// configs/validation/accuracy/NAME.csv, from the working directory or the source tree.
std::string own_table(const std::string& name);

}  // namespace kvcast::score
