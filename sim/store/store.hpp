// The results of a sweep: one SQLite file, DIR/results.sqlite, with one row per experiment. docs/results.md describes
// its tables for those who query them.
//
// A row's key is the hash of all inputs (the configuration and the version of the code), so a repeated sweep finds the
// existing results and computes the others, and a changed input never meets an old result.
//
// Several writers may work at once: threads share one Store (every member is safe to call from any of them), and
// processes each open the same directory. Each put is a separate transaction under a write-ahead log; a process killed
// at any moment loses at most the experiments that were running. The log is flushed only at checkpoints
// (synchronous=NORMAL), so after a power cut the last rows may be missing, and the file is still consistent. Writers
// must share one machine: SQLite's write-ahead log does not work over a network file system.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/origin.hpp"
#include "result/result.hpp"
#include "store/finding.hpp"
#include "store/settings.hpp"
#include "store/sqlite.hpp"

namespace kvcast::store {

class RowReader;

struct Stored {
  std::int64_t ordinal = 0;  // index in the expanded sweep: rows are read in this order, whichever finished first
  std::string code_version;
  std::string created_at;  // UTC, "2025-01-31T12:00:00Z"
  result::Result result;
};

using result::MachineNumber;

// Texts about the sweep as a whole.
inline constexpr const char* kMetaName = "name";
inline constexpr const char* kMetaDescription = "description";
inline constexpr const char* kMetaConfig = "config";    // the sweep's configuration, its keys in their order
inline constexpr const char* kMetaPlanned = "planned";  // experiments of the sweep, finished or not

class Store {
 public:
  enum class Open : unsigned char { kExisting, kCreate };

  // Returns whether DIR/results.sqlite exists.
  static bool exists(const std::string& dir);
  // Opens DIR/results.sqlite; kCreate makes the directory and the file if they are missing. Throws UserError naming the
  // file if it is missing, damaged, not kvcast's, of another schema version, or without a column of this program's
  // metrics.
  static Store open(const std::string& dir, Open mode);

  // Returns the place in the reading order of an experiment that has a result (ok or oom). A failed one has none and
  // may be retried.
  std::optional<std::int64_t> ordinal_of(const std::string& key) const;
  bool has(const std::string& key) const { return ordinal_of(key).has_value(); }
  // Throws UserError naming the file and the row if the row is damaged: each has a checksum of its cells.
  std::optional<Stored> get(const std::string& key) const;

  // Stores the result under its key unless that has a result already; a failed row is replaced by any later result.
  // Settings that no row had before become columns; throws UserError if there are more than SQLite's limit. Returns
  // whether the result was stored.
  bool put(std::int64_t ordinal, const result::Result& result, const std::string& code_version);
  // The same for a row of another store, which keeps its time of creation.
  bool put(const Stored& stored);
  // Moves rows of an earlier sweep, by their keys, to their places in the order of this one.
  void move(const std::vector<std::pair<std::string, std::int64_t>>& ordinals);
  // Removes damaged rows, so that the sweep computes them again. Returns a text for each, which names file and row.
  std::vector<std::string> drop_damaged();
  // Verifies everything that has not been since it was opened, and keeps a hash of the file beside it
  // (DIR/results.sqlite-seal); false if something is damaged. A store whose file has these bytes when it is opened
  // again is not verified row by row.
  bool seal_verified();
  // Returns whether it had them.
  bool was_sealed() const { return was_sealed_; }

  // All keys, in reading order (ordinal, then key).
  std::vector<std::string> keys() const;
  // Restricts keys(), for_each(), count(), the view `runs` and the exports to the rows of these keys: those of the
  // current sweep. Rows of another sweep or of another version of kvcast stay in the file, hidden. Empty: all rows.
  void show(const std::vector<std::string>& keys);
  // These keys in alphabetical order, whether they have a row or not.
  std::vector<std::string> shown() const;

  // Visits every shown row in reading order, or those whose key is `wanted`. Rows are read in blocks, so `visit` may
  // call the store, and rows that others add meanwhile may or may not be seen. Throws UserError as get() does.
  void for_each(const std::function<void(const Stored&)>& visit,
                const std::function<bool(const std::string& key)>& wanted = {}) const;
  // Visits, for every shown row in order, the text that `make` returns for its cells of these columns.
  void for_each_text(const std::vector<std::string>& columns,
                     const std::function<std::string(std::span<const CellView> cells)>& make,
                     const std::function<void(const std::string&)>& visit) const;
  std::int64_t count(result::Status status) const;

  // The settings of all shown rows.
  Settings settings() const;

  // Replays are cached separately from results because one replay is re-timed on many devices. A key, once put, never
  // changes; returns whether the bytes were stored. Damaged bytes count as missing.
  bool put_replay(const std::string& key, std::string_view bytes);
  std::vector<std::string> replay_keys() const;
  std::optional<std::string> get_replay(const std::string& key) const;

  // A later value replaces an earlier one.
  void set_metadata(const std::string& name, std::string_view value);
  std::optional<std::string> metadata(const std::string& name) const;

  // All numbers of a machine; later ones replace earlier ones. Machines by name. As with findings and answers, reading
  // throws UserError naming the file and the table if they differ from what was written.
  void set_machine(const std::string& name, const std::vector<MachineNumber>& numbers);
  std::map<std::string, std::vector<MachineNumber>> machines() const;

  // The findings of the sweep, in order; later findings replace earlier ones.
  void set_findings(const std::vector<Finding>& findings);
  std::vector<Finding> findings() const;

  // Answers to a plan's questions, in order; later ones replace earlier ones.
  void set_answers(const std::vector<Answer>& answers);
  std::vector<Answer> answers() const;

  const std::string& path() const { return database_->path(); }

 private:
  Store(std::unique_ptr<Database> database, Database::Version version, bool sealed);
  template <class Entry>
  void read_blocks(const std::function<void(const Entry&)>& visit,
                   const std::function<bool(const std::string&)>& wanted,
                   const std::function<Entry(RowReader&)>& read) const;
  std::vector<std::string> texts(const std::string& query) const;  // the first column of a query's rows
  // The statement that inserts a row of these columns. SQLite compares each of hundreds of names with each column to
  // prepare it, which takes longer than to insert the row.
  Statement& insertion(const Row& row);

  std::unique_ptr<std::mutex> mutex_;  // a pointer, so that a Store can be returned by value
  std::unique_ptr<Database> database_;
  Database::Version opened_version_;
  bool was_sealed_;
  std::set<std::string, std::less<>> columns_;  // that the table is known to have
  // A statement for each set of columns; few, as rows of a kind have the same.
  std::map<std::string, std::unique_ptr<Statement>> insertions_;
  std::unique_ptr<Statement> forget_failed_;
  mutable std::unique_ptr<Statement> ordinal_of_, get_;
};

}  // namespace kvcast::store
