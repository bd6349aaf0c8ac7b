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
#include "base/parallel.hpp"
#include "store/row.hpp"
#include "store/row_reader.hpp"
#include "store/schema.hpp"
#include "store/seal.hpp"

namespace kvcast::store {

namespace {

namespace fs = std::filesystem;

// An insert takes well under a millisecond, so only a stuck process makes a writer wait this long.
constexpr int kBusyMs = 60000;
constexpr std::size_t kBlockRows = 256;
constexpr int kMostReaders = 8;  // threads that read rows

fs::path path_in(const std::string& dir) { return fs::path(dir) / "results.sqlite"; }

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, size);
}

Row whole_row_of(const Stored& stored) {
  Row row = row_of(stored.result);
  row["ordinal"] = stored.ordinal;
  row["code_version"] = stored.code_version;
  row["created_at"] = stored.created_at;
  row[std::string(kChecksum)] = checksum_of(row);
  return row;
}

// Switching to the write-ahead log needs the file alone, and SQLite reports a rival at once instead of waiting for it.
void use_write_ahead_log(Database& database) {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + std::chrono::milliseconds(kBusyMs);
  std::string mode;
  while (mode.empty()) {
    try {
      mode = database.query_text("PRAGMA journal_mode = WAL");
    } catch (const UserError&) {
      if (!database.is_locked() || steady_clock::now() > give_up) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (mode != "wal") {
    throw UserError({database.path(), 0, 0}, "the file system does not support SQLite's write-ahead log");
  }
}

}  // namespace

Store::Store(std::unique_ptr<Database> database, Database::Version version, bool sealed)
    : mutex_(std::make_unique<std::mutex>()),
      database_(std::move(database)),
      opened_version_(std::move(version)),
      was_sealed_(sealed) {}

bool Store::exists(const std::string& dir) { return fs::exists(path_in(dir)); }

Store Store::open(const std::string& dir, Open mode) {
  const std::string path = path_in(dir).string();
  std::error_code error;
  if (mode == Open::kCreate) {
    fs::create_directories(dir, error);
    if (error) throw UserError({dir, 0, 0}, fmt::format("the directory cannot be made ({})", error.message()));
  } else if (!fs::exists(path, error)) {
    throw UserError({path, 0, 0}, "there is no such store; `kvcast sweep CONFIG -o DIR` makes one");
  }
  if (fs::is_fifo(path, error) || fs::is_character_file(path, error) || fs::is_block_file(path, error)) {
    throw UserError({path, 0, 0}, "not a file");
  }
  auto database = std::make_unique<Database>(path, mode == Open::kCreate, kBusyMs);
  if (mode == Open::kCreate) create_schema(*database);
  const bool sealed = is_sealed_file(*database);
  const Database::Version version = database->version();
  verify_schema(*database, sealed);
  if (mode == Open::kCreate) {
    use_write_ahead_log(*database);
    database->hold_place();
  }
  database->execute("PRAGMA synchronous = NORMAL");
  return Store(std::move(database), version, sealed);
}

std::optional<std::int64_t> Store::ordinal_of(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  if (!ordinal_of_)
    ordinal_of_ = std::make_unique<Statement>(*database_,
                                              "SELECT ordinal FROM experiments WHERE key = ?1 AND status <> 'failed'");
  std::optional<std::int64_t> ordinal;
  if (ordinal_of_->reset().bind(1, key).step()) ordinal = ordinal_of_->integer(0);
  ordinal_of_->reset();  // a statement that is not at its end holds a lock
  return ordinal;
}

std::optional<Stored> Store::get(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  if (!get_) get_ = std::make_unique<Statement>(*database_, "SELECT * FROM experiments WHERE key = ?1");
  const auto at_end = [this](const void*) { get_->reset(); };  // a statement that is not at its end holds a lock
  const std::unique_ptr<const void, decltype(at_end)> reset(this, at_end);
  if (!get_->reset().bind(1, key).step()) return std::nullopt;
  return RowReader(*database_, *get_).read();
}

bool Store::put(std::int64_t ordinal, const result::Result& result, const std::string& code_version) {
  return put({ordinal, code_version, utc_now(), result});
}

bool Store::put(const Stored& stored) {
  const std::string& key = stored.result.key;
  KVCAST_CHECK(!key.empty());
  Row row = whole_row_of(stored);
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  if (!forget_failed_) {
    forget_failed_ =
        std::make_unique<Statement>(*database_, "DELETE FROM experiments WHERE key = ?1 AND status = 'failed'");
  }
  forget_failed_->reset().bind(1, key).step();
  const auto is_known = [&](const auto& cell) { return columns_.contains(cell.first); };
  std::set<std::string, std::less<>> columns;
  if (!std::ranges::all_of(row, is_known)) columns = add_missing_columns(*database_, row);
  Statement& insert = insertion(row);
  int parameter = 0;
  for (const auto& [column, cell] : row) insert.bind_cell(++parameter, cell);
  insert.step();
  insert.reset();
  const bool is_new = database_->changes() > 0;
  transaction.commit();
  if (!columns.empty()) columns_ = std::move(columns);  // columns that were rolled back are not known
  return is_new;
}

void Store::move(const std::vector<std::pair<std::string, std::int64_t>>& ordinals) {
  Statement update(*database_, "UPDATE experiments SET ordinal = ?2, checksum = ?3 WHERE key = ?1");
  for (std::size_t first = 0; first < ordinals.size(); first += kBlockRows) {
    std::vector<Stored> moved;
    for (std::size_t i = first; i < std::min(first + kBlockRows, ordinals.size()); ++i) {
      std::optional<Stored> stored = get(ordinals[i].first);
      if (stored) moved.push_back(std::move(*stored)), moved.back().ordinal = ordinals[i].second;
    }
    const std::lock_guard lock(*mutex_);
    Transaction transaction(*database_);
    for (const Stored& stored : moved) {
      update.reset().bind(1, stored.result.key).bind(2, stored.ordinal);
      update.bind_cell(3, whole_row_of(stored).at(std::string(kChecksum))).step();
    }
    transaction.commit();
  }
}

Statement& Store::insertion(const Row& row) {
  std::string names;
  for (const auto& [column, cell] : row) (names += column) += '\n';
  if (insertions_.size() > 64) insertions_.clear();
  std::unique_ptr<Statement>& statement = insertions_[names];
  if (statement) return statement->reset();
  std::string columns, markers;
  for (const auto& [column, cell] : row) {
    columns += fmt::format("{}{}", columns.empty() ? "" : ", ", sql_name(column));
    markers += markers.empty() ? "?" : ", ?";
  }
  // Uses neither INSERT OR IGNORE, which would hide other broken constraints too, nor OR REPLACE, which would let a
  // late duplicate overwrite what a reader may have seen.
  statement =
      std::make_unique<Statement>(*database_, fmt::format("INSERT INTO experiments ({}) VALUES ({}) ON CONFLICT "
                                                          "(key) DO NOTHING",
                                                          columns, markers));
  return *statement;
}

std::vector<std::string> Store::drop_damaged() {
  if (was_sealed_) return {};
  const std::lock_guard lock(*mutex_);
  std::vector<std::string> texts;
  for (const auto& [row, damage] : damaged_rows(*database_)) {
    texts.push_back(format_location({path(), 0, 0}) + damage);
    Statement(*database_, "DELETE FROM experiments WHERE rowid = ?1").bind(1, row).step();
  }
  return texts;
}

bool Store::seal_verified() {
  const std::lock_guard lock(*mutex_);
  database_->query_text("PRAGMA wal_checkpoint(TRUNCATE)");
  const Snapshot snapshot(*database_);
  const bool same = database_->version() == opened_version_;  // whose pages have been checked
  if (!same && database_->query_text("PRAGMA integrity_check(1)") != "ok") return false;
  if (!damaged_rows(*database_).empty()) return false;
  seal_file(*database_);
  return true;
}

std::vector<std::string> Store::texts(const std::string& query) const {
  const std::lock_guard lock(*mutex_);
  std::vector<std::string> texts;
  for (Statement all(*database_, query); all.step();) texts.push_back(all.text(0));
  return texts;
}

std::vector<std::string> Store::keys() const {
  return texts(fmt::format("SELECT key FROM experiments WHERE {} ORDER BY ordinal, key", kIsShown));
}

std::vector<std::string> Store::shown() const { return texts("SELECT key FROM shown ORDER BY key"); }

// Reads rows in blocks, several at once by a connection each, so that `visit` may call the store. Of the rows that are
// not wanted, only the index is read.
template <class Entry>
void Store::read_blocks(const std::function<void(const Entry&)>& visit,
                        const std::function<bool(const std::string&)>& wanted,
                        const std::function<Entry(RowReader&)>& read) const {
  std::vector<std::string> keys = this->keys();
  if (wanted) std::erase_if(keys, [&](const std::string& key) { return !wanted(key); });
  const auto blocks_from = [&](std::size_t first) { return (keys.size() - first + kBlockRows - 1) / kBlockRows; };
  const int threads = std::min(hardware_threads(), kMostReaders);
  std::vector<std::vector<Entry>> blocks(std::min(blocks_from(0), static_cast<std::size_t>(threads)));
  std::vector<std::unique_ptr<Database>> others;
  while (others.size() + 1 < blocks.size()) others.push_back(std::make_unique<Database>(path(), false, kBusyMs));
  const auto read_block = [&](Database& database, std::size_t first, std::vector<Entry>& block) {
    block.clear();
    const Snapshot snapshot(database);  // a column that others add would be unknown to the reader
    Statement next(database, "SELECT * FROM experiments WHERE key = ?1");
    RowReader row(database, next);
    for (std::size_t i = first; i < std::min(first + kBlockRows, keys.size()); ++i) {
      if (next.reset().bind(1, keys[i]).step()) block.push_back(read(row));
    }
  };
  for (std::size_t first = 0; first < keys.size(); first += blocks.size() * kBlockRows) {
    blocks.resize(std::min(blocks.size(), blocks_from(first)));
    {
      const std::lock_guard lock(*mutex_);
      parallel_for(blocks.size(), threads, [&](std::size_t b) {
        read_block(b == 0 ? *database_ : *others[b - 1], first + b * kBlockRows, blocks[b]);
      });
    }
    for (const std::vector<Entry>& block : blocks) {
      for (const Entry& entry : block) visit(entry);
    }
  }
}

void Store::for_each(const std::function<void(const Stored&)>& visit,
                     const std::function<bool(const std::string& key)>& wanted) const {
  read_blocks<Stored>(visit, wanted, [](RowReader& rows) { return rows.read(); });
}

void Store::for_each_text(const std::vector<std::string>& columns,
                          const std::function<std::string(std::span<const CellView> cells)>& make,
                          const std::function<void(const std::string&)>& visit) const {
  read_blocks<std::string>(visit, {}, [&](RowReader& rows) { return rows.text(columns, make); });
}

Settings Store::settings() const {
  const std::lock_guard lock(*mutex_);
  return read_settings(*database_);
}

void Store::show(const std::vector<std::string>& keys) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  database_->execute("DELETE FROM shown");
  Statement insert(*database_, "INSERT OR IGNORE INTO shown (key) VALUES (?1)");
  for (const std::string& key : keys) insert.reset().bind(1, key).step();
  transaction.commit();
}

std::int64_t Store::count(result::Status status) const {
  const std::lock_guard lock(*mutex_);
  Statement count(*database_, fmt::format("SELECT count(*) FROM experiments WHERE status = ?1 AND {}", kIsShown));
  count.bind(1, status_name(status));
  KVCAST_CHECK(count.step());
  return count.integer(0);
}

}  // namespace kvcast::store
