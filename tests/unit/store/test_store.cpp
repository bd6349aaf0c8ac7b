// The contract of Store: what is put comes back, once, in order; what is not kvcast's is refused by name.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

using kvcast::UserError;
using kvcast::store::Database;
using kvcast::store::Record;
using kvcast::store::Status;
using kvcast::store::Store;
using nlohmann::json;

namespace {

Record record(const std::string& key, std::int64_t ordinal, Status status = Status::kOk) {
  Record r;
  r.key = key;
  r.ordinal = ordinal;
  r.values = {{"policy.budget", "1024"}};
  r.config = {{"model", "llama-3.1-8b"}, {"policy", {{"name", "quest"}, {"budget", 1024}}}};
  r.status = status;
  r.result = {{"decode", {{"tokens_per_s", 41.5}}}};
  r.code_version = "v1";
  r.created_at = "2025-01-31T12:00:00Z";
  r.wall_s = 0.25;
  return r;
}

void require_message(const std::function<void()>& action, const std::string& file, const std::string& part) {
  try {
    action();
  } catch (const UserError& error) {
    const std::string what = error.what();
    INFO(what);
    CHECK(what.find(file) != std::string::npos);
    CHECK(what.find(part) != std::string::npos);
    return;
  }
  FAIL("expected a UserError about " << part);
}

}  // namespace

TEST_CASE("a record comes back as it was put") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  Record in = record("k1", 7, Status::kOom);
  in.config["label"] = std::string("quote \" comma , line\nbreak, zero \0 end", 38);
  REQUIRE(store.put(in));
  const auto out = store.get("k1");
  REQUIRE(out.has_value());
  CHECK(out->key == in.key);
  CHECK(out->ordinal == 7);
  CHECK(out->values == in.values);
  CHECK(out->config == in.config);
  CHECK(out->status == Status::kOom);
  CHECK(out->result == in.result);
  CHECK(out->code_version == "v1");
  CHECK(out->created_at == "2025-01-31T12:00:00Z");
  CHECK(out->wall_s == 0.25);
  CHECK_FALSE(store.get("k2").has_value());
}

TEST_CASE("put fills in the time, and stores what JSON cannot say as null") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  Record in = record("k", 0);
  in.created_at.clear();
  in.result["nan"] = std::numeric_limits<double>::quiet_NaN();
  in.config["path"] = "\xff\xfe";  // not UTF-8
  REQUIRE(store.put(in));
  const auto out = store.get("k");
  CHECK(out->created_at.size() == 20);  // 2025-01-31T12:00:00Z
  CHECK(out->created_at.back() == 'Z');
  CHECK(out->result["nan"].is_null());
  CHECK(out->config["path"] == "\xef\xbf\xbd\xef\xbf\xbd");  // U+FFFD twice
}

TEST_CASE("the first result of a key stays, and a failure gives way") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  REQUIRE(store.put(record("k", 1)));
  Record later = record("k", 2);
  later.result = {{"decode", {{"tokens_per_s", 99.0}}}};
  CHECK_FALSE(store.put(later));
  CHECK(store.get("k")->result["decode"]["tokens_per_s"] == 41.5);

  REQUIRE(store.put(record("f", 3, Status::kFailed)));
  CHECK_FALSE(store.has("f"));
  CHECK(store.put(record("f", 3, Status::kFailed)));  // failing again is news too
  CHECK(store.put(record("f", 3, Status::kOom)));
  CHECK(store.has("f"));
  CHECK_FALSE(store.put(record("f", 3, Status::kFailed)));
  CHECK(store.get("f")->status == Status::kOom);

  CHECK(store.count(Status::kOk) == 1);
  CHECK(store.count(Status::kOom) == 1);
  CHECK(store.count(Status::kFailed) == 0);
}

TEST_CASE("reading goes by ordinal, then key, over block borders, and may call the store") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  // 600 rows are three blocks of 256; two share each ordinal, put in reverse.
  for (int i = 599; i >= 0; --i) store.put(record(fmt::format("{:03}", i), i / 2));
  std::vector<std::string> seen;
  store.for_each([&](const Record& r) {
    seen.push_back(r.key);
    CHECK(store.has(r.key));
  });
  REQUIRE(seen.size() == 600);
  for (int i = 0; i < 600; ++i) CHECK(seen[static_cast<std::size_t>(i)] == fmt::format("{:03}", i));
  CHECK(store.keys() == seen);
}

TEST_CASE("negative ordinals and empty stores are read too") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  int seen = 0;
  store.for_each([&](const Record&) { ++seen; });
  CHECK(seen == 0);
  store.put(record("k", std::numeric_limits<std::int64_t>::min()));
  store.for_each([&](const Record&) { ++seen; });
  CHECK(seen == 1);
}

TEST_CASE("replays and metadata outlive the process") {
  const kvcast::TemporaryDirectory dir;
  const std::string bytes("\0\x01\xff binary", 10);
  {
    Store store = Store::open(dir.path(), Store::Open::kCreate);
    CHECK(store.put_replay("r", bytes));
    CHECK_FALSE(store.put_replay("r", "other"));
    CHECK(store.put_replay("empty", ""));
    store.set_metadata(kvcast::store::kMetaName, "first");
    store.set_metadata(kvcast::store::kMetaName, "second");
  }
  const Store store = Store::open(dir.path(), Store::Open::kExisting);
  CHECK(store.get_replay("r") == bytes);
  CHECK(store.get_replay("empty") == "");
  CHECK_FALSE(store.get_replay("none").has_value());
  CHECK(store.metadata("name") == "second");
  CHECK_FALSE(store.metadata("findings").has_value());
}

TEST_CASE("what is not a store is refused by name") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  const auto open = [&] { Store::open(dir.path(), Store::Open::kExisting); };
  const auto create = [&] { Store::open(dir.path(), Store::Open::kCreate); };

  SECTION("nothing there") { require_message(open, path, "no such store"); }
  SECTION("a file of another kind") {
    std::ofstream(path) << std::string(4096, 'x');
    require_message(open, path, "not a readable store");
    require_message(create, path, "not a readable store");
  }
  SECTION("a database of another program") {
    Database(path, true, 100).execute("CREATE TABLE notes (text TEXT)");
    require_message(open, path, "not a store of kvcast");
    require_message(create, path, "not a store of kvcast");
  }
  SECTION("another schema version") {
    create();
    Database(path, false, 100).execute("PRAGMA user_version = 99");
    require_message(open, path, "schema version 99");
  }
  SECTION("a directory in the file's place") {
    std::filesystem::create_directories(path);
    require_message(open, path, "cannot be used");
  }
  SECTION("a file in the directory's place") {
    const std::string file = dir.path() + "/plain";
    std::ofstream(file) << "x";
    require_message([&] { Store::open(file, Store::Open::kCreate); }, file, "cannot be made");
  }
  SECTION("a row that another program spoilt") {
    create();
    {
      Store store = Store::open(dir.path(), Store::Open::kExisting);
      store.put(record("k", 0));
    }
    Database(path, false, 100).execute("UPDATE experiments SET result = '{\"decode\":'");
    const Store store = Store::open(dir.path(), Store::Open::kExisting);
    require_message([&] { store.get("k"); }, path, "row k is damaged");
  }
}

TEST_CASE("a damaged file is refused or read right, never wrongly and never with a crash") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  {
    Store store = Store::open(dir.path(), Store::Open::kCreate);
    for (int i = 0; i < 50; ++i) store.put(record(fmt::format("{:02}", i), i));
  }
  std::string whole;
  {
    std::ifstream in(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  REQUIRE(whole.size() > 8192);
  int refused = 0;
  const auto read_all = [&] {
    try {
      const Store store = Store::open(dir.path(), Store::Open::kExisting);
      store.for_each([](const Record&) {});
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).find(path) != std::string::npos);
      ++refused;
    }
  };
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (std::size_t cut = 0; cut < whole.size(); cut += 1021) {
    write(whole.substr(0, cut));
    read_all();
  }
  // A file of 0 bytes is an empty database and no store; every other cut loses pages that the header counts.
  CHECK(refused == static_cast<int>((whole.size() + 1020) / 1021));
  for (std::size_t place = 0; place < whole.size(); place += 211) {
    std::string bytes = whole;
    for (std::size_t i = place; i < std::min(place + 16, bytes.size()); ++i)
      bytes[i] = static_cast<char>(bytes[i] ^ 0x5a);
    write(bytes);
    read_all();  // a flipped letter inside a text may go unseen; a crash or a message without the file may not
  }
}
