// CSV export: every expected name and cell is derived by hand from the results in its test.
#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "result/metric.hpp"
#include "store/csv.hpp"
#include "support/small_result.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using kvcast::result::Result;
using kvcast::store::Store;

namespace {

// A strict RFC 4180 reader, to read back what the writer wrote.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& field = rows.back().back();
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        field += '"';
        ++i;
      } else if (c == '"') {
        quoted = false;
      } else {
        field += c;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      rows.push_back({""});
      ++i;
    } else {
      field += c;
    }
  }
  rows.pop_back();  // after the last line end
  return rows;
}

}  // namespace

TEST_CASE("fields are quoted where RFC 4180 requires it, and only there") {
  const auto field = [](const std::string& text) {
    std::ostringstream out;
    kvcast::store::write_csv_field(out, text);
    return out.str();
  };
  CHECK(field("plain text") == "plain text");
  CHECK(field("") == "");
  CHECK(field("a,b") == "\"a,b\"");
  CHECK(field("say \"no\"") == "\"say \"\"no\"\"\"");
  CHECK(field("two\nlines") == "\"two\nlines\"");
  CHECK(field("cr\r") == "\"cr\r\"");
}

TEST_CASE("texts that a spreadsheet would execute are marked as text, and numbers stay numbers") {
  const auto field = [](const std::string& text) {
    std::ostringstream out;
    kvcast::store::write_csv_field(out, text);
    return out.str();
  };
  CHECK(field("=1+1") == "\"'=1+1\"");
  CHECK(field("=HYPERLINK(\"x\")") == "\"'=HYPERLINK(\"\"x\"\")\"");
  CHECK(field("+a") == "\"'+a\"");
  CHECK(field("-cmd|' /C calc'!A0") == "\"'-cmd|' /C calc'!A0\"");
  CHECK(field("@SUM(A1)") == "\"'@SUM(A1)\"");
  CHECK(field("-") == "\"'-\"");
  for (const char* plain : {"-1", "+2.5", "-1e-07", "-inf", "a=1", "1-2"}) CHECK(field(plain) == plain);
}

TEST_CASE("the export has the settings of all rows and every metric, readable by a strict RFC 4180 reader") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  Result a = small_result();
  a.subject.settings = {{"policy.name", std::string("quest, \"paged\"")}, {"policy.tau", 0.1}};
  a.experiment.tokens_per_s = 1.0 / 3, a.wall_s = 0.5;
  Result b;
  b.key = "b", b.status = kvcast::result::Status::kOom;
  b.subject.settings = {
      {"policy.budget", std::int64_t{1024}}, {"policy.exact", true}, {"policy.name", std::string("full\nkv")}};
  b.experiment.oom = kvcast::result::OutOfMemory{"hbm", "prefill", 3e10, 2e10, 4e10, {}, "activations"};
  store.put(1, a, "v1");
  store.put(0, b, "v2");  // first in reading order
  std::ostringstream out;
  export_csv(store, out);
  const auto rows = read_csv(out.str());
  REQUIRE(rows.size() == 3);
  const std::vector<std::string> first = {"key",
                                          "status",
                                          "error",
                                          "code_version",
                                          "created_at",
                                          "wall_s",
                                          "config.policy.budget",
                                          "config.policy.exact",
                                          "config.policy.name",
                                          "config.policy.tau",
                                          "serving.requests_per_s",
                                          "serving.requests_per_s.low",
                                          "serving.requests_per_s.high",
                                          "serving.requests_per_s.origin"};
  CHECK(std::vector(rows[0].begin(), rows[0].begin() + 14) == first);
  const std::vector<std::string> last = {
      "bottleneck",          "oom.pool",         "oom.moment",        "oom.requested_for",
      "oom.requested_bytes", "oom.in_use_bytes", "oom.capacity_bytes"};
  CHECK(std::vector(rows[0].end() - 7, rows[0].end()) == last);
  std::map<std::string, std::string> of_b, of_a;
  for (const auto& row : rows) REQUIRE(row.size() == rows[0].size());
  for (std::size_t i = 0; i < rows[0].size(); ++i) of_b[rows[0][i]] = rows[1][i], of_a[rows[0][i]] = rows[2][i];
  CHECK(of_a.size() == rows[0].size());  // no name twice
  for (const auto& metric : kvcast::result::all_metrics()) CHECK(of_a.count(metric.path) == 1);

  CHECK(of_b["status"] + of_b["code_version"] + of_b["config.policy.budget"] == "oomv21024");
  CHECK(of_b["config.policy.exact"] == "true");
  CHECK(of_b["config.policy.name"] == "full\nkv");
  CHECK(of_b["oom.requested_for"] + of_b["oom.moment"] == "activationsprefill");
  CHECK(std::stod(of_b["oom.requested_bytes"]) == 3e10);
  CHECK(of_b["decode.tokens_per_s"].empty());
  CHECK(of_a["wall_s"] + of_a["config.policy.tau"] == "0.50.1");
  CHECK(of_a["config.policy.name"] == "quest, \"paged\"");
  CHECK(of_a["decode.tokens_per_s"] == "0.3333333333333333");
  CHECK(of_a["decode.tpot_s.mean.origin"] + of_a["bottleneck"] == "fittedhost link");
  CHECK(of_a["config.policy.budget"].empty());
  CHECK(of_a["oom.pool"].empty());
}

}  // namespace kvcast::tests
