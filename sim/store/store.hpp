// The results of a sweep: one SQLite file, DIR/results.sqlite, with one row an experiment.
//
// A row's key is the hash of all that went in (the inputs and the version of the code), so a sweep that is run again
// finds what it has and goes on with what it lacks, and a changed input never meets an old result.
//
// Many may write at once: threads share one Store (every member is safe to call from any of them), and processes open
// the same directory each for itself. Each put is a transaction of its own under a write-ahead log; a process killed at
// any moment loses at most the experiments that were running. The log is flushed at checkpoints only
// (synchronous=NORMAL), so after a power cut the last rows may be missing, and the file is still whole. Writers must
// share one machine: SQLite's write-ahead log does not work over a network file system.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/sqlite.hpp"

namespace kvcast::store {

enum class Status : unsigned char {
  kOk,
  kOom,     // a result as well: the configuration does not fit, and the result says what did not
  kFailed,  // no result; result["error"] says why
};
std::string_view status_name(Status status);

struct Record {
  std::string key;           // unique; 32 hexadecimal digits by content_hash
  std::int64_t ordinal = 0;  // place in the expanded sweep: reading goes in this order, whoever finished first
  nlohmann::json values;     // the sweep's coordinates, {"policy.budget": "1024", ...}
  nlohmann::json config;     // the resolved configuration
  Status status = Status::kOk;
  nlohmann::json result;  // numbers that are not finite are stored as null (JSON has no others)
  std::string code_version;
  std::string created_at;  // UTC, "2025-01-31T12:00:00Z"; filled in by put where empty
  double wall_s = 0;       // what the experiment cost to simulate
};

// What a sweep is asked to find, or what its report should say.
inline constexpr const char* kMetaName = "name";
inline constexpr const char* kMetaDescription = "description";
inline constexpr const char* kMetaConfig = "config";  // the sweep's YAML as the user wrote it
inline constexpr const char* kMetaRestsOn =
    "rests_on/";  // + hardware: JSON: [{"what", "origin", "uncertainty", "source"}, ...]
inline constexpr const char* kMetaPlanned = "planned";    // experiments of the sweep, finished or not
inline constexpr const char* kMetaFindings = "findings";  // JSON: [{"title", "text", "detail"}, ...]

class Store {
 public:
  enum class Open : unsigned char { kExisting, kCreate };

  // Opens DIR/results.sqlite; kCreate makes the directory and the file where they are missing. Throws UserError naming
  // the file where it is missing, damaged, not kvcast's, or of another schema version.
  static Store open(const std::string& dir, Open mode);

  // Whether the experiment has a result (ok or oom). A failed one has none and is worth another try.
  bool has(const std::string& key) const;
  std::optional<Record> get(const std::string& key) const;

  // Stores the record unless its key has a result already; a failed row gives way to any later record. Returns whether
  // the record was stored.
  bool put(const Record& record);

  // All keys, in reading order (ordinal, then key).
  std::vector<std::string> keys() const;
  // From now on keys(), for_each(), count() and the exports show the rows of these keys only: those of the sweep at
  // hand. Rows of another sweep or of another version of kvcast stay in the file, unseen. Empty: all rows.
  void show(const std::vector<std::string>& keys);

  // Every shown record in reading order. Rows are read in blocks, so `visit` may call the store, and rows that others
  // add meanwhile may or may not be seen.
  void for_each(const std::function<void(const Record&)>& visit) const;
  std::int64_t count(Status status) const;

  // Replays are cached apart from results because one replay is re-timed on many devices. A key, once put, stays as it
  // is; returns whether the bytes were stored.
  bool put_replay(const std::string& key, std::string_view bytes);
  std::optional<std::string> get_replay(const std::string& key) const;

  // Texts about the sweep as a whole; a later value replaces an earlier one.
  void set_metadata(const std::string& name, std::string_view value);
  std::optional<std::string> metadata(const std::string& name) const;

  const std::string& path() const { return database_->path(); }

 private:
  explicit Store(std::unique_ptr<Database> database);

  std::unique_ptr<std::mutex> mutex_;  // held by pointer so that a Store can be returned by value
  std::unique_ptr<Database> database_;
};

}  // namespace kvcast::store
