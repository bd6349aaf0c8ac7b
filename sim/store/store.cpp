// Concurrency is SQLite's write-ahead log (https://www.sqlite.org/wal.html): readers
// never wait, writers queue for the one write lock with a busy timeout, and a transaction is in the file entirely or
// not at all.
#include "store/store.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "store/row.hpp"
#include "store/schema.hpp"

namespace kvcast::store {

namespace {

namespace fs = std::filesystem;

// An insert takes well under a millisecond, so only a stuck process makes a writer wait this long.
constexpr int kBusyMs = 60000;
constexpr int kBlockRows = 256;

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, size);
}

// Reads rows of SELECT * FROM experiments.
class RowReader {
 public:
  RowReader(const Database& database, const Statement& rows) : database_(database), rows_(rows) {}

  Stored read() {
    if (names_.empty()) names_ = rows_.column_names();
    Row row;
    try {
      for (std::size_t i = 0; i < names_.size(); ++i) row[names_[i]] = rows_.cell(static_cast<int>(i));
      return {std::get<std::int64_t>(row["ordinal"]), std::get<std::string>(row["code_version"]),
              std::get<std::string>(row["created_at"]), result_of(row)};
    } catch (const std::exception& error) {
      // Only another program can have written this: it is up to the user to repair or delete the row.
      const auto* key = std::get_if<std::string>(&row["key"]);
      throw UserError({database_.path(), 0, 0},
                      fmt::format("row {} is damaged: {}", key != nullptr ? *key : "without a key", error.what()));
    }
  }

 private:
  const Database& database_;
  const Statement& rows_;
  std::vector<std::string> names_;
};

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

}  // namespace

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
  verify_schema(*database);
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

std::optional<Stored> Store::get(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  Statement find(*database_, "SELECT * FROM experiments WHERE key = ?1");
  find.bind(1, key);
  if (!find.step()) return std::nullopt;
  return RowReader(*database_, find).read();
}

bool Store::put(std::int64_t ordinal, const result::Result& result, const std::string& code_version) {
  KVCAST_CHECK(!result.key.empty());
  Row row = row_of(result);
  row["ordinal"] = ordinal;
  row["code_version"] = code_version;
  row["created_at"] = utc_now();
  std::string columns, places;
  for (const auto& [column, cell] : row) {
    columns += fmt::format("{}{}", columns.empty() ? "" : ", ", sql_name(column));
    places += places.empty() ? "?" : ", ?";
  }
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  Statement(*database_, "DELETE FROM experiments WHERE key = ?1 AND status = 'failed'").bind(1, result.key).step();
  add_missing_columns(*database_, row);
  // Neither INSERT OR IGNORE, which would hide other broken constraints too, nor OR REPLACE, which would let a late
  // double overwrite what a reader may have seen.
  Statement insert(*database_, fmt::format("INSERT INTO experiments ({}) VALUES ({}) ON CONFLICT (key) DO NOTHING",
                                           columns, places));
  int parameter = 0;
  for (const auto& [column, cell] : row) insert.bind_cell(++parameter, cell);
  insert.step();
  const bool stored = database_->changes() > 0;
  transaction.commit();
  return stored;
}

std::vector<std::string> Store::keys() const {
  const std::lock_guard lock(*mutex_);
  std::vector<std::string> keys;
  Statement all(*database_, fmt::format("SELECT key FROM experiments WHERE {} ORDER BY ordinal, key", kIsShown));
  while (all.step()) keys.push_back(all.text(0));
  return keys;
}

void Store::for_each(const std::function<void(const Stored&)>& visit) const {
  std::vector<Stored> block;
  std::int64_t ordinal = INT64_MIN;
  std::string key;
  do {
    block.clear();
    {
      const std::lock_guard lock(*mutex_);
      Statement next(*database_,
                     fmt::format("SELECT * FROM experiments WHERE (ordinal, key) > (?1, ?2) AND {} ORDER BY "
                                 "ordinal, key LIMIT ?3",
                                 kIsShown));
      next.bind(1, ordinal).bind(2, key).bind(3, std::int64_t{kBlockRows});
      RowReader rows(*database_, next);
      while (next.step()) block.push_back(rows.read());
    }
    for (const Stored& stored : block) visit(stored);
    if (!block.empty()) {
      ordinal = block.back().ordinal;
      key = block.back().result.key;
    }
  } while (!block.empty());
}

void Store::show(const std::vector<std::string>& keys) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  database_->execute("DELETE FROM shown");
  for (const std::string& key : keys) {
    Statement(*database_, "INSERT OR IGNORE INTO shown (key) VALUES (?1)").bind(1, key).step();
  }
  transaction.commit();
}

std::int64_t Store::count(result::Status status) const {
  const std::lock_guard lock(*mutex_);
  Statement count(*database_, fmt::format("SELECT count(*) FROM experiments WHERE status = ?1 AND {}", kIsShown));
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

void Store::set_machine(const std::string& name, const std::vector<MachineNumber>& numbers) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  Statement(*database_, "DELETE FROM machine_numbers WHERE machine = ?1").bind(1, name).step();
  for (const MachineNumber& n : numbers) {
    Statement insert(*database_, "INSERT INTO machine_numbers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
    insert.bind(1, name).bind(2, n.key).bind(4, n.unit).bind(5, origin_name(n.origin));
    insert.bind(6, n.uncertainty).bind(7, n.source);
    if (n.value) insert.bind(3, *n.value);
    insert.step();
  }
  transaction.commit();
}

std::map<std::string, std::vector<MachineNumber>> Store::machines() const {
  const std::lock_guard lock(*mutex_);
  Statement all(*database_,
                "SELECT machine, key, value, unit, origin, uncertainty, source FROM machine_numbers ORDER BY rowid");
  std::map<std::string, std::vector<MachineNumber>> machines;
  while (all.step()) {
    const Cell value = all.cell(2);
    MachineNumber n;
    n.key = all.text(1), n.unit = all.text(3), n.uncertainty = all.real(5), n.source = all.text(6);
    if (const auto* number = std::get_if<double>(&value)) n.value = *number;
    try {
      n.origin = origin_from_name(all.text(4));
    } catch (const UserError& error) {
      throw UserError({path(), 0, 0}, fmt::format("machine_numbers, {} of {}: {}", n.key, all.text(0), error.what()));
    }
    machines[all.text(0)].push_back(std::move(n));
  }
  return machines;
}

void Store::set_findings(const std::vector<Finding>& findings) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  database_->execute("DELETE FROM findings");
  for (const Finding& f : findings) {
    Statement insert(*database_, "INSERT INTO findings (title, text, detail, places) VALUES (?1, ?2, ?3, ?4)");
    insert.bind(1, f.title).bind(2, f.text).bind(3, f.detail).bind(4, f.places).step();
  }
  transaction.commit();
}

std::vector<Finding> Store::findings() const {
  const std::lock_guard lock(*mutex_);
  Statement all(*database_, "SELECT title, text, detail, places FROM findings ORDER BY position");
  std::vector<Finding> findings;
  while (all.step()) findings.push_back({all.text(0), all.text(1), all.text(2), all.text(3)});
  return findings;
}

void Store::set_answers(const std::vector<Answer>& answers) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  database_->execute("DELETE FROM answers");
  for (const Answer& a : answers) {
    Statement insert(*database_,
                     "INSERT INTO answers (kind, question, text, details, data, runs) VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
    insert.bind(1, a.kind).bind(2, a.question).bind(3, a.text).bind(4, a.details).bind(5, a.data);
    insert.bind(6, static_cast<std::int64_t>(a.runs)).step();
  }
  transaction.commit();
}

std::vector<Answer> Store::answers() const {
  const std::lock_guard lock(*mutex_);
  Statement all(*database_, "SELECT kind, question, text, details, data, runs FROM answers ORDER BY position");
  std::vector<Answer> answers;
  while (all.step()) {
    answers.push_back(
        {all.text(0), all.text(1), all.text(2), all.text(3), all.text(4), static_cast<int>(all.integer(5))});
  }
  return answers;
}

}  // namespace kvcast::store
