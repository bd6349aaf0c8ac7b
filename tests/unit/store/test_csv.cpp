// Flattening and CSV: every name and cell derived by hand from the nested value above it.
#include <catch2/catch.hpp>
#include <sstream>

#include "store/csv.hpp"
#include "store/flatten.hpp"
#include "support/temporary_directory.hpp"

using kvcast::store::Column;
using kvcast::store::Record;
using kvcast::store::Status;
using kvcast::store::Store;
using nlohmann::json;

namespace {

std::vector<std::string> texts(const std::vector<Column>& columns) {
  std::vector<std::string> out;
  for (const Column& c : columns) out.push_back(c.name + "=" + c.value.dump());
  return out;
}

// A reader by the letter of RFC 4180, to read back what the writer wrote.
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
  rows.pop_back();  // what follows the last line end
  return rows;
}

}  // namespace

TEST_CASE("scalars are named by their path, named lists by their names, pairs by low and high") {
  const json value = json::parse(R"({
    "b": {"x": 1.5, "s": "hbm", "none": null, "yes": true},
    "owners": [{"owner": "weights", "bytes": 7}, {"owner": "kv", "bytes": 8, "share": {"of": 2}}],
    "breakdown": [{"kind": "attention", "exposed_s": 0.5}],
    "intervals": {"decode.tpot": [1, 2]},
    "timeline": [{"lane": "compute", "kind": "gemm", "start_s": 0}],
    "plain": [1, 2, 3], "empty": [], "object": {}
  })");
  CHECK(texts(kvcast::store::flatten(value, "r")) ==
        std::vector<std::string>{"r.b.none=null", "r.b.s=\"hbm\"", "r.b.x=1.5", "r.b.yes=true",
                                 "r.breakdown.attention.exposed_s=0.5", "r.intervals.decode.tpot.low=1",
                                 "r.intervals.decode.tpot.high=2", "r.owners.weights.bytes=7", "r.owners.kv.bytes=8",
                                 "r.owners.kv.share.of=2"});
  CHECK(texts(kvcast::store::flatten(json{{"a", 1}})) == std::vector<std::string>{"a=1"});
}

TEST_CASE("fields are quoted where RFC 4180 asks, and only there") {
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

TEST_CASE("the export is the union of columns, one line a row, readable by the letter of the RFC") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  Record a;
  a.key = "a";
  a.ordinal = 1;
  a.config = {{"policy", {{"name", "quest, \"paged\""}}}};
  a.result = {{"decode", {{"tokens_per_s", 0.1}}}};
  a.code_version = "v1";
  a.created_at = "2025-01-31T12:00:00Z";
  a.wall_s = 0.5;
  Record b = a;
  b.key = "b";
  b.ordinal = 0;  // first in reading order
  b.status = Status::kOom;
  b.config = {{"policy", {{"name", "full\nkv"}, {"budget", 1024}}}};
  b.result = {{"oom", {{"pool", "hbm"}}}};
  store.put(a);
  store.put(b);
  std::ostringstream out;
  export_csv(store, out);
  const auto rows = read_csv(out.str());
  REQUIRE(rows.size() == 3);
  CHECK(rows[0] == std::vector<std::string>{"key", "status", "code_version", "created_at", "wall_s",
                                            "config.policy.budget", "config.policy.name", "result.decode.tokens_per_s",
                                            "result.oom.pool"});
  CHECK(rows[1] ==
        std::vector<std::string>{"b", "oom", "v1", "2025-01-31T12:00:00Z", "0.5", "1024", "full\nkv", "", "hbm"});
  CHECK(rows[2] ==
        std::vector<std::string>{"a", "ok", "v1", "2025-01-31T12:00:00Z", "0.5", "", "quest, \"paged\"", "0.1", ""});
}
