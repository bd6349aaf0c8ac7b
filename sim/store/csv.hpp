// Results as CSV (RFC 4180), for spreadsheets, pandas and R.
#pragma once

#include <ostream>
#include <string_view>

#include "store/store.hpp"

namespace kvcast::store {

// Writes one field, quoted if it contains a comma, a quote or a line break. A text that a spreadsheet would run as a
// formula (starting with =, +, - or @) gets an apostrophe in front, which makes it a text there; numbers are unchanged.
void write_csv_field(std::ostream& out, std::string_view field);

// One line per experiment in reading order, named as in the table `experiments`: key, status, error, code_version,
// created_at, wall_s; the settings of all rows as config.KEY, in alphabetical order; every metric by its path, followed
// by PATH.low, PATH.high and PATH.origin if it can have an interval; bottleneck; and, if an experiment did not fit,
// oom.pool, oom.moment, oom.requested_for, oom.requested_bytes, oom.in_use_bytes and oom.capacity_bytes. A cell is
// empty if the row has no such value. Numbers are the shortest texts that read back equal. Lines end in CRLF as the RFC
// requires.
// setting_keys: of store.settings(), if they are known.
void export_csv(const Store& store, std::ostream& out, const std::vector<std::string>& setting_keys = {});

}  // namespace kvcast::store
