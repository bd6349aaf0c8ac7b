// A thin layer over SQLite's C interface (https://www.sqlite.org/c3ref/intro.html).
#include "store/sqlite.hpp"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "base/error.hpp"
#include "base/failure.hpp"
#include "base/hash.hpp"

namespace kvcast::store {

namespace {

// Returns whether the folder cannot be written and no process has left rows in a separate log: SQLite reads such a file
// only when it is promised that nobody writes to it.
bool is_frozen(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).parent_path();
  return ::access(folder.c_str(), W_OK) != 0 && ::access(path.c_str(), R_OK) == 0 && !fs::exists(path + "-wal", error);
}

std::string frozen_address(const std::string& path) {
  std::string address = "file:";
  for (const char c : path) {
    const bool plain = c != '%' && c != '?' && c != '#';
    address += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return address + "?immutable=1";
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void Database::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

Statement::Statement(Database& database, const std::string& sql) : database_(database) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(database.connection_.get(), sql.c_str(), -1, &raw, nullptr);
  statement_.reset(raw);
  check(code);
}

Statement& Statement::reset() {
  sqlite3_reset(statement_.get());  // returns the error of the last step, which has been thrown
  sqlite3_clear_bindings(statement_.get());
  return *this;
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_.fail(code, sqlite3_errmsg(database_.connection_.get()));
}

Statement& Statement::bind(int parameter, std::string_view text) {
  check(sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind_blob(int parameter, std::string_view bytes) {
  // A null pointer would bind NULL, and an empty blob is not NULL.
  const char* data = bytes.empty() ? "" : bytes.data();
  check(sqlite3_bind_blob64(statement_.get(), parameter, data, bytes.size(), SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::bind(int parameter, std::int64_t number) {
  check(sqlite3_bind_int64(statement_.get(), parameter, number));
  return *this;
}

Statement& Statement::bind(int parameter, double number) {
  check(sqlite3_bind_double(statement_.get(), parameter, number));
  return *this;
}

Statement& Statement::bind_cell(int parameter, const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return bind(parameter, std::string_view(*text));
  if (const auto* number = std::get_if<double>(&cell)) return bind(parameter, *number);
  return bind(parameter, std::get<std::int64_t>(cell));
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) check(code);
  return false;
}

namespace {

// The blob accessor returns text unchanged and keeps bytes after a zero.
std::string_view text_view(sqlite3_stmt* row, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(row, column));
  const int size = sqlite3_column_bytes(row, column);
  return data == nullptr ? std::string_view() : std::string_view(data, static_cast<std::size_t>(size));
}

}  // namespace

std::string Statement::text(int column) const { return std::string(text_view(statement_.get(), column)); }

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

Cell Statement::cell(int column) const { return owned(view(column)); }

CellView Statement::view(int column) const {
  sqlite3_stmt* const row = statement_.get();
  switch (sqlite3_column_type(row, column)) {
    case SQLITE_NULL:
      return {};
    case SQLITE_INTEGER:
      return integer(column);
    case SQLITE_FLOAT:
      return real(column);
    case SQLITE_TEXT:
      return text_view(row, column);
    default:
      throw std::runtime_error(fmt::format("{} contains a blob", sqlite3_column_name(row, column)));
  }
}

std::vector<std::string> Statement::column_names() const {
  std::vector<std::string> names;
  for (int i = 0; i < sqlite3_column_count(statement_.get()); ++i) {
    names.emplace_back(sqlite3_column_name(statement_.get(), i));
  }
  return names;
}

Database::Database(const std::string& path, bool create, int busy_ms) : path_(path) {
  sqlite3* raw = nullptr;
  const bool frozen = !create && is_frozen(path);
  const int access = frozen ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI : SQLITE_OPEN_READWRITE;
  const int flags = access | (create ? SQLITE_OPEN_CREATE : 0) | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2((frozen ? frozen_address(path) : path).c_str(), &raw, flags, nullptr);
  connection_.reset(raw);
  if (code != SQLITE_OK) fail(code, raw != nullptr ? sqlite3_errmsg(raw) : sqlite3_errstr(code));
  sqlite3_busy_timeout(raw, busy_ms);
}

void Database::execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, sqlite3_errmsg(connection_.get()));
}

std::int64_t Database::query_integer(const std::string& sql) {
  Statement statement(*this, sql);
  KVCAST_CHECK(statement.step());
  return statement.integer(0);
}

std::string Database::query_text(const std::string& sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.text(0) : std::string();
}

Snapshot::~Snapshot() {
  try {
    database_.execute("COMMIT");
  } catch (...) {  // it has read only
  }
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (const UserError&) {  // SQLite has rolled it back already, as it does if the disk is full
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
  database_.check_place();
}

namespace {

std::optional<std::pair<std::uint64_t, std::uint64_t>> place_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return std::pair<std::uint64_t, std::uint64_t>(status.st_dev, status.st_ino);
}

}  // namespace

void Database::hold_place() { place_ = place_of(path_); }

void Database::check_place() const {
  if (!place_ || place_of(path_) == place_) return;
  throw OutputError(path_ + ": was deleted or replaced while results were written to it; they are lost");
}

std::string Database::file_hash() const {
  std::error_code absent;
  const auto logged = std::filesystem::file_size(path_ + "-wal", absent);
  if (!absent && logged > 0) return "";
  sqlite3_file* file = nullptr;
  sqlite3_int64 size = 0;
  const bool known = sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK;
  if (!known || file->pMethods->xFileSize(file, &size) != SQLITE_OK) return "";
  std::string block(std::size_t{1} << 20, '\0'), hashes;
  for (sqlite3_int64 at = 0; at < size; at += static_cast<sqlite3_int64>(block.size())) {
    const auto length = std::min(size - at, static_cast<sqlite3_int64>(block.size()));
    if (file->pMethods->xRead(file, block.data(), static_cast<int>(length), at) != SQLITE_OK) return "";
    hashes += content_hash(std::string_view(block).substr(0, static_cast<std::size_t>(length)));
  }
  return content_hash(hashes);
}

// The first number counts the changes that other connections committed, the second those of this connection.
Database::Version Database::version() {
  return {query_integer("PRAGMA data_version"), sqlite3_total_changes(connection_.get())};
}

int Database::changes() const { return sqlite3_changes(connection_.get()); }

int Database::column_limit() const { return sqlite3_limit(connection_.get(), SQLITE_LIMIT_COLUMN, -1); }

bool Database::is_locked() const {
  const int code = sqlite3_errcode(connection_.get()) & 0xff;
  return code == SQLITE_BUSY || code == SQLITE_LOCKED;
}

bool Database::is_read_only() const { return sqlite3_db_readonly(connection_.get(), "main") != 0; }

void Database::fail(int code, const char* message) const {
  KVCAST_CHECK(code != SQLITE_MISUSE && code != SQLITE_RANGE);
  const std::string reason = message;
  switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      throw UserError({path_, 0, 0}, fmt::format("not a readable store of results ({})", reason));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw UserError({path_, 0, 0}, fmt::format("another process keeps the store locked ({})", reason));
    default:
      throw UserError({path_, 0, 0}, fmt::format("the store cannot be used ({})", reason));
  }
}

}  // namespace kvcast::store
