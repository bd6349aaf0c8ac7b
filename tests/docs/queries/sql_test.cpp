// Runs the SQL of docs/results.md and compares its results with those that the page shows.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <set>
#include <sstream>

#include "docs/page_stores.hpp"
#include "result/metric.hpp"
#include "store/row.hpp"
#include "store/sqlite.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

struct Example {
  std::string sql, shown;
};

std::string page() {
  std::ifstream in(std::string(KVCAST_SOURCE_DIR) + "/docs/results.md");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Each block of SQL with the block of text that follows it.
std::vector<Example> examples() {
  std::vector<Example> found;
  std::istringstream in(page());
  std::string* block = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line == "```sql") {
      block = &found.emplace_back().sql;
    } else if (line == "```text" && !found.empty() && found.back().shown.empty()) {
      block = &found.back().shown;
    } else if (line.starts_with("```")) {
      block = nullptr;
    } else if (block != nullptr) {
      *block += line + "\n";
    }
  }
  return found;
}

// Output of `sqlite3 -header` in the folder of the two stores.
std::string run(const std::string& dir, std::string sql) {
  const std::string relative = "'pcie5/";
  const auto at = sql.find(relative);
  if (at != std::string::npos) sql.replace(at, relative.size(), fmt::format("'{}/pcie5/", dir));
  store::Database database(dir + "/pcie4/results.sqlite", false, 1000);
  std::string out;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = sql.find(';', begin)) != std::string::npos; begin = end + 1) {
    store::Statement statement(database, sql.substr(begin, end - begin));
    while (statement.step()) {
      const auto names = statement.column_names();
      std::string header, row;
      for (std::size_t i = 0; i < names.size(); ++i) {
        const char* const separator = i > 0 ? "|" : "";
        header += fmt::format("{}{}", separator, names[i]);
        row += fmt::format("{}{}", separator, statement.text(static_cast<int>(i)));
      }
      if (out.empty()) out = header + "\n";
      out += row + "\n";
    }
  }
  return out;
}

TEST_CASE("the SQL of the page returns the results of the page") {
  const TemporaryDirectory dir;
  write_page_stores(dir.path());
  const auto all = examples();
  REQUIRE(all.size() == 4);
  for (const Example& example : all) {
    INFO(example.sql);
    REQUIRE_FALSE(example.shown.empty());
    CHECK(run(dir.path(), example.sql) == example.shown);
  }
  // Derived by hand: the throughputs of page_stores.hpp, 80 and 125 % of them, 16 GB and 1 GB a sequence.
  CHECK(all[0].shown ==
        "policy|batch|tps|low|high|hbm_gb\n"
        "quest|4|400.0|320|500|20.0\n"
        "freekv|4|300.0|240|375|20.0\n"
        "quest|1|120.0|96|150|17.0\n");
  // Full KV at batch 4 requests 17 GB with 16 of 24 GB in use.
  CHECK(all[1].shown == "policy|batch|oom_pool|oom_requested_for|missing_gb\nfull|4|hbm|KV cache|9.0\n");
  // A step of freekv at batch 4 takes 4 / 300 s.
  CHECK(all[2].shown == "policy|tpot_ms|origin\nfreekv|13.33|exact\nquest|10.0|exact\n");
  // 99 / 90 and 390 / 300; neither full KV nor quest uses the link.
  CHECK(all[3].shown ==
        "policy|batch|pcie4|pcie5|speedup\n"
        "freekv|4|300.0|390.0|1.3\n"
        "freekv|1|90.0|99.0|1.1\n"
        "quest|4|400.0|400.0|1.0\n"
        "quest|1|120.0|120.0|1.0\n"
        "full|1|100.0|100.0|1.0\n");
}

TEST_CASE("the page names every table and every column that is not a metric") {
  const TemporaryDirectory dir;
  write_page_stores(dir.path());
  const std::string text = page();
  store::Database database(dir.path() + "/pcie4/results.sqlite", false, 1000);
  store::Statement tables(database, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')");
  while (tables.step()) CHECK_THAT(text, Catch::Contains(fmt::format("`{}`", tables.text(0))));
  for (const store::Column& column : store::result_columns()) {
    if (column.name.find('.') == std::string::npos) CHECK_THAT(text, Catch::Contains(fmt::format("`{}`", column.name)));
  }
  store::Statement columns(database, "SELECT name FROM pragma_table_info('machine_numbers')");
  while (columns.step()) CHECK_THAT(text, Catch::Contains(columns.text(0)));
}

}  // namespace
}  // namespace kvcast::tests
