// Creates, checks and widens the tables of a store. docs/results.md describes them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "store/sqlite.hpp"

namespace kvcast::store {

// Creates the tables if the file is empty, in one transaction, so that of several processes that start together one
// creates them and all find them.
void create_schema(Database& database);

// Throws UserError naming the file unless it is a complete store of this schema version with a column for every metric.
// sealed: its pages have been verified before.
void verify_schema(Database& database, bool sealed);

// Adds a column for each cell whose column the table of experiments lacks; inside a transaction, so that no other
// writer adds the same one. Returns all columns. Throws UserError if SQLite's limit is reached.
std::set<std::string, std::less<>> add_missing_columns(Database& database, const Row& row);

std::set<std::string, std::less<>> experiment_columns(Database& database);

// A name as SQL quotes it: "decode.tpot_s.mean".
std::string sql_name(std::string_view name);
// SQL condition: a row of experiments belongs to the current sweep; all do if Store::show was never called.
inline constexpr const char* kIsShown = "(NOT EXISTS (SELECT 1 FROM shown) OR key IN (SELECT key FROM shown))";

}  // namespace kvcast::store
