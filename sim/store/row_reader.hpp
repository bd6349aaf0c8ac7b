// Reads rows of SELECT * FROM experiments.
#pragma once

#include <functional>
#include <span>
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
  // The same: what `make` makes of the cells of these columns, which the table has and which are the same in every
  // call.
  using MakeText = std::function<std::string(std::span<const CellView> cells)>;
  std::string text(const std::vector<std::string>& columns, const MakeText& make);
  // Explains how the row differs from what was written; empty if it does not.
  std::string damage();

 private:
  void read_cells();
  Row row() const;
  template <class Made>
  Made checked(const std::function<Made()>& make);
  bool has_checksum();
  std::string damage(const char* why) const;

  const Database& database_;
  const Statement& rows_;
  std::vector<std::pair<std::string, int>> columns_;  // in alphabetical order, and their numbers
  std::vector<CellView> cells_;                       // of the present row, in this order
  std::vector<std::size_t> picked_;                   // places of the columns whose cells are wanted
  std::string text_;                                  // keeps its memory
};

// The damaged rows of experiments: their numbers, and texts that explain what is wrong.
std::vector<std::pair<std::int64_t, std::string>> damaged_rows(Database& database);

}  // namespace kvcast::store
