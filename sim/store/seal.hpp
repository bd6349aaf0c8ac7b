// Checksums of what rows do not check themselves: of the rows that are written together in other tables than
// `experiments`, kept in the table `metadata`, and of the whole file, kept beside it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/sqlite.hpp"

namespace kvcast::store {

void put_metadata(Database& database, const std::string& name, std::string_view value);
std::optional<std::string> find_metadata(Database& database, const std::string& name);

// Keeps the checksum of the table's rows: of all, or of those of one machine.
void seal(Database& database, const std::string& table, const std::string& machine = "");
// Throws UserError naming the file and the table if the rows are not those that were sealed. Rows that have never been
// sealed, as in older stores, pass.
void verify_seal(Database& database, const std::string& table, const std::string& machine = "");

// Keeps a hash of the file's bytes in PATH-seal, if all that is stored is in the file. A snapshot in which everything
// has been verified must live.
void seal_file(const Database& database);
// Whether the file has the bytes that were sealed.
bool is_sealed_file(Database& database);

}  // namespace kvcast::store
