// The settings of all experiments of a store by key, from one pass over its rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::store {

class Database;

struct Settings {
  struct Column {
    std::string key;                   // of the configuration; at least one row sets it
    std::vector<std::string> values;   // each text once, in reading order; empty: rows that do not set the key
    std::vector<std::uint32_t> cells;  // for each row a place in `values`
  };
  std::vector<std::string> rows;  // their keys, in reading order
  std::vector<Column> columns;    // in alphabetical order

  // Keys of the columns, in their order.
  std::vector<std::string> keys() const;
};

// The settings of the shown rows. Other cells are not read, nor checksums verified.
Settings read_settings(Database& database);

}  // namespace kvcast::store
