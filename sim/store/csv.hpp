// Results as CSV by RFC 4180, for spreadsheets, pandas and R.
#pragma once

#include <ostream>
#include <string_view>

#include "store/store.hpp"

namespace kvcast::store {

// Writes one field, quoted where it holds a comma, a quote or a line break.
void write_csv_field(std::ostream& out, std::string_view field);

// One line an experiment in reading order. Columns: key, status, code_version, created_at, wall_s; then the
// configuration as config.*, then the result as result.*, each the union over all rows in alphabetical order. A cell is
// empty where the row has no such value. Lines end in CRLF as the RFC asks.
void export_csv(const Store& store, std::ostream& out);

}  // namespace kvcast::store
