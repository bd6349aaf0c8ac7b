// The part of SQLite that the store needs, with handles that clean up after themselves and errors that name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/row.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace kvcast::store {

class Database;

// One prepared statement. Parameters count from 1 and columns from 0, as in SQLite.
class Statement {
 public:
  // Throws UserError naming the file if SQLite rejects the statement.
  Statement(Database& database, const std::string& sql);

  Statement& bind(int parameter, std::string_view text);
  Statement& bind_blob(int parameter, std::string_view bytes);
  Statement& bind(int parameter, std::int64_t number);
  Statement& bind(int parameter, double number);
  Statement& bind_cell(int parameter, const Cell& cell);

  // Forgets the parameters, so that the statement can run again.
  Statement& reset();
  // True while there is a row to read. Throws UserError naming the file on a damaged, full or unreachable database.
  bool step();
  std::string text(int column) const;
  std::int64_t integer(int column) const;
  double real(int column) const;
  Cell cell(int column) const;  // throws std::runtime_error for a blob
  // The same, whose text is valid until the next step or reading of this column as something else.
  CellView view(int column) const;
  // Names of the columns; valid only after step(), because the columns of SELECT * follow the schema until then.
  std::vector<std::string> column_names() const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  void check(int code) const;

  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// One connection, used by one thread at a time. Waits up to busy_ms for the locks of others.
class Database {
 public:
  // A file in a folder that cannot be written is opened read-only.
  Database(const std::string& path, bool create, int busy_ms);

  // Runs statements without results.
  void execute(const std::string& sql);
  // Returns the single integer that a query or pragma yields.
  std::int64_t query_integer(const std::string& sql);
  // Returns the first column of the first row as text; empty if there is no row.
  std::string query_text(const std::string& sql);
  // Equal versions: nobody has changed the database in between.
  using Version = std::pair<std::int64_t, std::int64_t>;
  Version version();
  // Returns the number of rows that the last INSERT, UPDATE or DELETE changed.
  int changes() const;
  // Returns the largest number of columns of a table.
  int column_limit() const;

  bool is_read_only() const;

  // Remembers which file this is; transactions that are committed afterwards throw OutputError if it is no longer the
  // one at its path: SQLite writes on to a file that has been deleted, and the rows would be lost without a word.
  void hold_place();
  void check_place() const;

  const std::string& path() const { return path_; }

  // A hash of all bytes of the file; empty if it cannot be read or if a log has changes that are not in it. Reads by
  // the connection: closing another descriptor of the file would drop the locks of this process.
  std::string file_hash() const;

  // Returns whether the last statement failed because others hold a lock.
  bool is_locked() const;

  // Turns SQLite's code into a UserError, or aborts if only a defect of kvcast can be the cause.
  [[noreturn]] void fail(int code, const char* message) const;

 private:
  friend class Statement;
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  std::string path_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> place_;  // device and inode
  std::unique_ptr<sqlite3, Close> connection_;
};

// While it lives, all statements read the same state, whatever others write.
class Snapshot {
 public:
  explicit Snapshot(Database& database) : database_(database) { database_.execute("BEGIN"); }
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  Database& database_;
};

// A transaction that holds the write lock from its start, and is rolled back unless it is committed.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace kvcast::store
