// A small table with named columns, stored by column: the data that the page embeds, the figures draw and the CSV files
// list.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace kvcast::report {

class Table {
 public:
  void begin_row() { ++rows_; }
  // Sets a cell of the row begun last, or of an earlier row. Non-finite numbers and empty texts are missing cells.
  void set(const std::string& column, double value) { set(rows_ - 1, column, value); }
  void set(const std::string& column, const std::string& text) { set(rows_ - 1, column, text); }
  void set(std::size_t row, const std::string& column, double value);
  void set(std::size_t row, const std::string& column, const std::string& text);

  std::size_t rows() const { return rows_; }
  // NaN, or an empty text, if the cell is missing.
  double number(std::size_t row, const std::string& column) const;
  std::string text(std::size_t row, const std::string& column) const;
  bool has_column(const std::string& name) const { return numbers_.count(name) + texts_.count(name) > 0; }

  // {"rows": n, "numbers": {column: [..]}, "texts": {column: {"of": [distinct texts], "at": [index or null, ..]}}}.
  // Numbers keep six significant digits: no prediction is more precise, and the page is half the size.
  nlohmann::json compact() const;
  // [{column: value, ..}, ..] without the missing cells: inline values for Vega.
  nlohmann::json objects() const;
  // RFC 4180: text columns first, then numbers, each in alphabetical order.
  void write_csv(std::ostream& out) const;

 private:
  struct Texts {
    std::vector<std::string> distinct;
    std::map<std::string, int> index;
    std::vector<int> cells;  // -1: missing
  };
  std::size_t rows_ = 0;
  std::map<std::string, std::vector<double>> numbers_;  // NaN: missing; may be shorter than rows_
  std::map<std::string, Texts> texts_;
};

}  // namespace kvcast::report
