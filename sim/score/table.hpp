// Published accuracy tables as rows of a CSV file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast::score {

// Columns paper, table, model, benchmark, context, task, method, budget, budget_unit, value; others are ignored.
struct Row {
  SourceLocation where;
  std::string paper, table, model, benchmark, context, task, method, budget, budget_unit;
  double value = 0;      // points of 100
  bool held_out = true;  // column held_out, true or false, where there is one: nothing was fitted to it
};

// Rows that hold no score are left out, and counted where `left_out` is given: a value that is no number from 0 to 100,
// another unit (count, text, ...). UserError for a file that cannot be read, columns that are missing or stand twice,
// lines of another width.
std::vector<Row> read_table(const std::string& path, std::int64_t* left_out = nullptr);

// configs/validation/accuracy/NAME.csv, from the working directory or the source tree.
std::string own_table(const std::string& name);

}  // namespace kvcast::score
