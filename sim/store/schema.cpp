#include "store/schema.hpp"

#include <set>

#include "base/error.hpp"
#include "result/metric.hpp"
#include "store/row.hpp"

namespace kvcast::store {
namespace {

// "kvca" in ASCII: distinguishes kvcast's files from any other SQLite database.
constexpr std::int64_t kApplicationId = 0x6b766361;
constexpr std::int64_t kSchemaVersion = 7;
// A setting that the view `runs` shows, and that the table therefore always has.
constexpr const char* kBudget = "config.policy.budget";

constexpr const char* kOtherTables = R"sql(
CREATE INDEX experiments_in_order ON experiments (ordinal, key);
CREATE TABLE machine_numbers (
  machine TEXT NOT NULL,
  key TEXT NOT NULL,
  value REAL,
  unit TEXT NOT NULL,
  origin TEXT NOT NULL,
  uncertainty REAL NOT NULL,
  source TEXT NOT NULL,
  PRIMARY KEY (machine, key)
);
CREATE TABLE findings (position INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL, detail TEXT NOT NULL,
                       places TEXT NOT NULL);
CREATE TABLE answers (position INTEGER PRIMARY KEY, kind TEXT NOT NULL, question TEXT NOT NULL, text TEXT NOT NULL,
                      details TEXT NOT NULL, data TEXT NOT NULL, runs INTEGER NOT NULL);
CREATE TABLE replays (key TEXT PRIMARY KEY NOT NULL, checksum TEXT NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE metadata (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);
CREATE TABLE shown (key TEXT PRIMARY KEY NOT NULL);
)sql";

// Columns of settings have no type: values keep theirs, and a text that reads like a number stays a text.
std::string experiments_table() {
  std::string sql =
      "CREATE TABLE experiments (\n"
      "  key TEXT PRIMARY KEY NOT NULL,\n"
      "  ordinal INTEGER NOT NULL,\n"
      "  code_version TEXT NOT NULL,\n"
      "  created_at TEXT NOT NULL,\n"
      "  checksum TEXT NOT NULL";
  for (const Column& column : result_columns()) sql += fmt::format(",\n  {} {}", sql_name(column.name), column.type);
  return sql + fmt::format(",\n  {}\n);\n", sql_name(kBudget));
}

// The most frequently used columns, under short names: those of the subject, and metrics by alias. Aliases with a dot
// belong to families.
std::string runs_view() {
  std::string sql = fmt::format(
      "CREATE VIEW runs AS SELECT key, ordinal, status, name, model, hardware, policy, {} AS budget,\n"
      "  prompt_tokens AS context, decode_tokens, batch, trace",
      sql_name(kBudget));
  for (const result::Metric& metric : result::all_metrics()) {
    if (metric.alias.empty() || metric.alias.find('.') != std::string::npos) continue;
    sql += fmt::format(",\n  {} AS {}", sql_name(metric.path), sql_name(metric.alias));
    if (!has_interval(metric)) continue;
    for (const char* end : {"low", "high"}) {
      sql += fmt::format(", {} AS {}", sql_name(metric.path + "." + end), sql_name(metric.alias + "_" + end));
    }
  }
  sql += ",\n  \"serving.state\" AS state, bottleneck, error";
  for (const char* part : {"pool", "moment", "requested_for", "requested_bytes", "in_use_bytes", "capacity_bytes"}) {
    sql += fmt::format(",\n  json_extract(parts, '$.oom.{0}') AS oom_{0}", part);
  }
  return sql + fmt::format("\nFROM experiments WHERE {}\nORDER BY ordinal, key;\n", kIsShown);
}

}  // namespace

std::set<std::string, std::less<>> experiment_columns(Database& database) {
  Statement names(database, "SELECT name FROM pragma_table_info('experiments')");
  std::set<std::string, std::less<>> columns;
  while (names.step()) columns.insert(names.text(0));
  return columns;
}

std::string sql_name(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

void create_schema(Database& database) {
  Transaction transaction(database);
  if (database.query_integer("PRAGMA application_id") == 0 &&
      database.query_integer("SELECT count(*) FROM sqlite_master") == 0) {
    database.execute(
        experiments_table() + kOtherTables + runs_view() +
        fmt::format("PRAGMA application_id = {};\nPRAGMA user_version = {};\n", kApplicationId, kSchemaVersion));
  }
  transaction.commit();
}

void verify_schema(Database& database, bool sealed) {
  const SourceLocation file{database.path(), 0, 0};
  if (database.query_integer("PRAGMA application_id") != kApplicationId) {
    throw UserError(file, "an SQLite database, but not a store of kvcast's results");
  }
  const char* const remedy = "use the version of kvcast that wrote it, or run the sweep again into another directory";
  const std::int64_t version = database.query_integer("PRAGMA user_version");
  if (version != kSchemaVersion) {
    throw UserError(file, fmt::format("a store of schema version {}, but this kvcast reads version {}; {}", version,
                                      kSchemaVersion, remedy));
  }
  std::string verdict = sealed ? "ok" : database.query_text("PRAGMA integrity_check(1)");
  if (verdict != "ok" && !database.is_read_only() && database.query_text("PRAGMA quick_check(1)") == "ok") {
    database.execute("REINDEX");  // only an index is damaged, and the rows, which have checksums, define it
    verdict = database.query_text("PRAGMA integrity_check(1)");
  }
  if (verdict != "ok")
    throw UserError(file, fmt::format("a damaged store ({}); move the file away and run the sweep again", verdict));
  const auto there = experiment_columns(database);
  for (const Column& column : result_columns()) {
    if (there.count(column.name) != 0) continue;
    throw UserError(file, fmt::format("the table experiments has no column \"{}\"; {}", column.name, remedy));
  }
}

std::set<std::string, std::less<>> add_missing_columns(Database& database, const Row& row) {
  auto there = experiment_columns(database);
  for (const auto& [column, cell] : row) {
    if (there.count(column) != 0) continue;
    if (there.size() >= static_cast<std::size_t>(database.column_limit())) {
      throw UserError({database.path(), 0, 0}, fmt::format("the store has {} columns, SQLite's limit, and none is left "
                                                           "for {}; use another directory for sweeps over other keys",
                                                           there.size(), column));
    }
    database.execute(fmt::format("ALTER TABLE experiments ADD COLUMN {}", sql_name(column)));
    there.insert(column);
  }
  return there;
}

}  // namespace kvcast::store
