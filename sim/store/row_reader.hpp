// Reads rows of SELECT * FROM experiments.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "store/store.hpp"

namespace kvcast::store {

class RowReader {
 public:
  // Both must outlive the reader.
  RowReader(const Database& database, const Statement& rows) : database_(database), rows_(rows) {}

  // Returns the present row. Throws UserError naming the file and the row if it is damaged.
  Stored read();
  // The same, cell by cell.
  Row cells();
  // Explains how the row differs from what was written; empty if it does not.
  std::string damage();

 private:
  void find_columns();
  void read_cells(Row& row);
  template <class Made>
  Made checked(Made (*make)(Row&&));
  bool has_checksum();
  std::string damage(const char* why) const;

  const Database& database_;
  const Statement& rows_;
  std::vector<std::pair<std::string, int>> columns_;  // in alphabetical order, and their numbers
  std::string text_;                                  // keeps its memory
};

}  // namespace kvcast::store
