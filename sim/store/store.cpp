// Four tables, hardly any joins. Concurrency is SQLite's write-ahead log (https://www.sqlite.org/wal.html): readers
// never wait, writers queue for the one write lock with a busy timeout, and a transaction is in the file entirely or
// not at all.
#include "store/store.hpp"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/error.hpp"

namespace kvcast::store {

namespace {

namespace fs = std::filesystem;

// "kvca" in ASCII: tells kvcast's files from any other SQLite database.
constexpr std::int64_t kApplicationId = 0x6b766361;
constexpr std::int64_t kSchemaVersion = 2;
// An insert takes well under a millisecond, so only a stuck process makes a writer wait this long.
constexpr int kBusyMs = 60000;
constexpr int kBlockRows = 256;

constexpr const char* kSchema = R"sql(
CREATE TABLE experiments (
  key TEXT PRIMARY KEY NOT NULL,
  ordinal INTEGER NOT NULL,
  vals TEXT NOT NULL,
  config TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ok', 'oom', 'failed')),
  result TEXT NOT NULL,
  code_version TEXT NOT NULL,
  created_at TEXT NOT NULL,
  wall_s REAL NOT NULL
);
CREATE INDEX experiments_in_order ON experiments (ordinal, key);
CREATE TABLE replays (key TEXT PRIMARY KEY NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE metadata (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);
CREATE TABLE shown (key TEXT PRIMARY KEY NOT NULL);
PRAGMA application_id = 1802920801;
PRAGMA user_version = 2;
)sql";
static_assert(kApplicationId == 1802920801 && kSchemaVersion == 2, "the schema's pragmas state these");

// Whether a row belongs to what show() named; all do where it was never called.
const std::string kIsShown = "(NOT EXISTS (SELECT 1 FROM shown) OR key IN (SELECT key FROM shown)) ";

constexpr const char* kColumns =
    "SELECT key, ordinal, vals, config, status, result, code_version, created_at, wall_s FROM experiments ";

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, size);
}

std::string dump(const nlohmann::json& value) {
  // Labels may come from file names in any encoding; a stray byte must not cost the row.
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status status_from_name(const std::string& name) {
  for (const Status status : {Status::kOk, Status::kOom, Status::kFailed}) {
    if (status_name(status) == name) return status;
  }
  throw UserError(fmt::format("unknown status '{}'; known: ok, oom, failed", name));
}

Record read_record(const Database& database, const Statement& row) {
  Record record;
  record.key = row.text(0);
  try {
    record.ordinal = row.integer(1);
    record.values = nlohmann::json::parse(row.text(2));
    record.config = nlohmann::json::parse(row.text(3));
    record.status = status_from_name(row.text(4));
    record.result = nlohmann::json::parse(row.text(5));
  } catch (const std::exception& error) {
    // Only another program can have written this: the file is theirs to mend.
    throw UserError({database.path(), 0, 0}, fmt::format("row {} is damaged: {}", record.key, error.what()));
  }
  record.code_version = row.text(6);
  record.created_at = row.text(7);
  record.wall_s = row.real(8);
  return record;
}

// Makes the schema in one transaction, so that of several processes that start together one makes it and all find it.
void create_schema(Database& database) {
  database.execute("BEGIN IMMEDIATE");
  if (database.query_integer("PRAGMA application_id") == 0 &&
      database.query_integer("SELECT count(*) FROM sqlite_master") == 0) {
    database.execute(kSchema);
  }
  database.execute("COMMIT");
}

// Going over to the write-ahead log needs the file alone, and SQLite reports a rival at once instead of waiting for it.
void use_write_ahead_log(Database& database) {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + std::chrono::milliseconds(kBusyMs);
  std::string mode;
  while (mode.empty()) {
    try {
      mode = database.query_text("PRAGMA journal_mode = WAL");
    } catch (const UserError&) {
      if (steady_clock::now() > give_up) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (mode != "wal") {
    throw UserError({database.path(), 0, 0}, "the file system does not support SQLite's write-ahead log");
  }
}

void verify(Database& database) {
  if (database.query_integer("PRAGMA application_id") != kApplicationId) {
    throw UserError({database.path(), 0, 0}, "an SQLite database, but not a store of kvcast's results");
  }
  const std::int64_t version = database.query_integer("PRAGMA user_version");
  if (version != kSchemaVersion) {
    throw UserError({database.path(), 0, 0},
                    fmt::format("a store of schema version {}, where this kvcast reads version {}; use the version of "
                                "kvcast that wrote it, or another directory",
                                version, kSchemaVersion));
  }
  const std::string verdict = database.query_text("PRAGMA quick_check(1)");
  if (verdict != "ok") throw UserError({database.path(), 0, 0}, fmt::format("a damaged store ({})", verdict));
}

}  // namespace

std::string_view status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kOom:
      return "oom";
    case Status::kFailed:
      return "failed";
  }
  return "failed";
}

Store::Store(std::unique_ptr<Database> database)
    : mutex_(std::make_unique<std::mutex>()), database_(std::move(database)) {}

Store Store::open(const std::string& dir, Open mode) {
  const std::string path = (fs::path(dir) / "results.sqlite").string();
  std::error_code error;
  if (mode == Open::kCreate) {
    fs::create_directories(dir, error);
    if (error) throw UserError({dir, 0, 0}, fmt::format("the directory cannot be made ({})", error.message()));
  } else if (!fs::exists(path, error)) {
    throw UserError({path, 0, 0}, "there is no such store; `kvcast sweep CONFIG -o DIR` makes one");
  }
  auto database = std::make_unique<Database>(path, mode == Open::kCreate, kBusyMs);
  if (mode == Open::kCreate) create_schema(*database);
  verify(*database);
  if (mode == Open::kCreate) use_write_ahead_log(*database);
  database->execute("PRAGMA synchronous = NORMAL");
  return Store(std::move(database));
}

bool Store::has(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  Statement find(*database_, "SELECT 1 FROM experiments WHERE key = ?1 AND status <> 'failed'");
  find.bind(1, key);
  return find.step();
}

std::optional<Record> Store::get(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  Statement find(*database_, (std::string(kColumns) + "WHERE key = ?1").c_str());
  find.bind(1, key);
  if (!find.step()) return std::nullopt;
  return read_record(*database_, find);
}

bool Store::put(const Record& record) {
  KVCAST_CHECK(!record.key.empty());
  const std::lock_guard lock(*mutex_);
  // Neither INSERT OR IGNORE, which would hide other broken constraints too, nor OR REPLACE, which would let a late
  // double overwrite what a reader may have seen.
  Statement insert(*database_,
                   "INSERT INTO experiments VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "
                   "ON CONFLICT (key) DO UPDATE SET ordinal = excluded.ordinal, vals = excluded.vals, "
                   "config = excluded.config, status = excluded.status, result = excluded.result, "
                   "code_version = excluded.code_version, created_at = excluded.created_at, wall_s = excluded.wall_s "
                   "WHERE status = 'failed'");
  insert.bind(1, record.key)
      .bind(2, record.ordinal)
      .bind(3, dump(record.values))
      .bind(4, dump(record.config))
      .bind(5, status_name(record.status))
      .bind(6, dump(record.result))
      .bind(7, record.code_version)
      .bind(8, record.created_at.empty() ? utc_now() : record.created_at)
      .bind(9, record.wall_s);
  insert.step();
  return database_->changes() > 0;
}

std::vector<std::string> Store::keys() const {
  const std::lock_guard lock(*mutex_);
  std::vector<std::string> keys;
  Statement all(*database_, ("SELECT key FROM experiments WHERE " + kIsShown + "ORDER BY ordinal, key").c_str());
  while (all.step()) keys.push_back(all.text(0));
  return keys;
}

void Store::for_each(const std::function<void(const Record&)>& visit) const {
  std::vector<Record> block;
  std::int64_t ordinal = INT64_MIN;
  std::string key;
  do {
    block.clear();
    {
      const std::lock_guard lock(*mutex_);
      Statement next(
          *database_,
          (kColumns + ("WHERE (ordinal, key) > (?1, ?2) AND " + kIsShown) + "ORDER BY ordinal, key LIMIT ?3").c_str());
      next.bind(1, ordinal).bind(2, key).bind(3, std::int64_t{kBlockRows});
      while (next.step()) block.push_back(read_record(*database_, next));
    }
    for (const Record& record : block) visit(record);
    if (!block.empty()) {
      ordinal = block.back().ordinal;
      key = block.back().key;
    }
  } while (!block.empty());
}

void Store::show(const std::vector<std::string>& keys) {
  const std::lock_guard lock(*mutex_);
  database_->execute("BEGIN IMMEDIATE");
  database_->execute("DELETE FROM shown");
  for (const std::string& key : keys) {
    Statement insert(*database_, "INSERT OR IGNORE INTO shown (key) VALUES (?1)");
    insert.bind(1, key).step();
  }
  database_->execute("COMMIT");
}

std::int64_t Store::count(Status status) const {
  const std::lock_guard lock(*mutex_);
  Statement count(*database_, ("SELECT count(*) FROM experiments WHERE status = ?1 AND " + kIsShown).c_str());
  count.bind(1, status_name(status));
  KVCAST_CHECK(count.step());
  return count.integer(0);
}

bool Store::put_replay(const std::string& key, std::string_view bytes) {
  KVCAST_CHECK(!key.empty());
  const std::lock_guard lock(*mutex_);
  Statement insert(*database_, "INSERT INTO replays VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING");
  insert.bind(1, key).bind_blob(2, bytes);
  insert.step();
  return database_->changes() > 0;
}

std::optional<std::string> Store::get_replay(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  Statement find(*database_, "SELECT bytes FROM replays WHERE key = ?1");
  find.bind(1, key);
  if (!find.step()) return std::nullopt;
  return find.text(0);
}

void Store::set_metadata(const std::string& name, std::string_view value) {
  const std::lock_guard lock(*mutex_);
  Statement insert(*database_,
                   "INSERT INTO metadata VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value");
  insert.bind(1, name).bind(2, value);
  insert.step();
}

std::optional<std::string> Store::metadata(const std::string& name) const {
  const std::lock_guard lock(*mutex_);
  Statement find(*database_, "SELECT value FROM metadata WHERE name = ?1");
  find.bind(1, name);
  if (!find.step()) return std::nullopt;
  return find.text(0);
}

}  // namespace kvcast::store
