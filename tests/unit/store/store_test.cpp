// The contract of Store: results are stored once and come back in order; files that are not kvcast's are rejected by
// name.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "base/failure.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"
#include "support/small_result.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using kvcast::UserError;
using kvcast::result::Result;
using kvcast::result::Status;
using kvcast::store::Database;
using kvcast::store::Store;
using kvcast::store::Stored;

namespace {

Result result(const std::string& key, Status status = Status::kOk) {
  Result r = small_result();
  r.key = key, r.status = status;
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

TEST_CASE("the first result of a key is kept, and a failure is replaced") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  REQUIRE(store.put(1, result("k"), "v1"));
  Result later = result("k");
  later.experiment.tokens_per_s = 99;
  CHECK_FALSE(store.put(2, later, "v1"));
  CHECK(store.get("k")->result.experiment.tokens_per_s == 200);
  CHECK(store.get("k")->ordinal == 1);
  CHECK_FALSE(store.get("none").has_value());

  Result failed = result("f", Status::kFailed);
  failed.subject.settings.push_back({"z", std::string("only here")});
  REQUIRE(store.put(3, failed, "v1"));
  CHECK_FALSE(store.has("f"));
  CHECK(store.put(3, result("f", Status::kFailed), "v2"));  // a repeated failure is stored, too
  CHECK(store.get("f")->code_version == "v2");
  CHECK(store.put(3, result("f", Status::kOom), "v3"));
  CHECK(store.has("f"));
  CHECK_FALSE(store.put(3, result("f", Status::kFailed), "v4"));
  CHECK(store.get("f")->result.status == Status::kOom);
  CHECK(store.get("f")->result.subject.find("z") == nullptr);  // no part of the failed row is left

  CHECK(store.count(Status::kOk) == 1);
  CHECK(store.count(Status::kOom) == 1);
  CHECK(store.count(Status::kFailed) == 0);
}

TEST_CASE("results are read by ordinal, then key, across block borders, and the reader may call the store") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  // 600 rows are three blocks of 256; two rows share each ordinal, and are put in reverse order.
  for (int i = 599; i >= 0; --i) store.put(i / 2, result(fmt::format("{:03}", i)), "v1");
  std::vector<std::string> seen;
  store.for_each([&](const Stored& s) {
    seen.push_back(s.result.key);
    CHECK(store.has(s.result.key));
  });
  REQUIRE(seen.size() == 600);
  for (int i = 0; i < 600; ++i) CHECK(seen[static_cast<std::size_t>(i)] == fmt::format("{:03}", i));
  CHECK(store.keys() == seen);
}

TEST_CASE("negative ordinals and empty stores can be read") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  int seen = 0;
  store.for_each([&](const Stored&) { ++seen; });
  CHECK(seen == 0);
  store.put(std::numeric_limits<std::int64_t>::min(), result("k"), "v1");
  store.for_each([&](const Stored&) { ++seen; });
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
  CHECK_FALSE(store.metadata("description").has_value());
}

TEST_CASE("a path that is not a store is rejected by name") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  const auto open = [&] { Store::open(dir.path(), Store::Open::kExisting); };
  const auto create = [&] { Store::open(dir.path(), Store::Open::kCreate); };

  SECTION("a missing file") { require_message(open, path, "no such store"); }
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
    for (const char* version : {"2", "99"}) {
      Database(path, false, 100).execute(std::string("PRAGMA user_version = ") + version);
      require_message(open, path, std::string("schema version ") + version);
      require_message(create, path, "run the sweep again into another directory");
    }
  }
  SECTION("a directory in place of the file") {
    std::filesystem::create_directories(path);
    require_message(open, path, "cannot be used");
  }
  SECTION("a file in place of the directory") {
    const std::string file = dir.path() + "/plain";
    std::ofstream(file) << "x";
    require_message([&] { Store::open(file, Store::Open::kCreate); }, file, "cannot be made");
  }
}

TEST_CASE("numbers of machines and findings are read back, and later ones replace them") {
  using kvcast::store::MachineNumber;
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  CHECK(store.machines().empty());
  CHECK(store.findings().empty());
  const auto datasheet = kvcast::Origin::kDatasheet;
  store.set_machine("h200", {{"old", 1.0, "", datasheet, 0, ""}});
  store.set_machine("h200", {{"gpu.hbm_bandwidth", 4.8e12, "B/s", datasheet, 0.1, "data sheet"},
                             {"gpu.curve", {}, "", kvcast::Origin::kFitted, 0.05, "own \xff"}});
  store.set_machine("a100", {});
  const auto machines = store.machines();
  REQUIRE(machines.size() == 1);  // a machine without numbers is not listed
  const std::vector<MachineNumber>& numbers = machines.at("h200");
  REQUIRE(numbers.size() == 2);
  CHECK(numbers[0].key == "gpu.hbm_bandwidth");
  CHECK(numbers[0].value == 4.8e12);
  CHECK(numbers[0].unit == "B/s");
  CHECK(numbers[0].origin == datasheet);
  CHECK(numbers[0].uncertainty == 0.1);
  CHECK_FALSE(numbers[1].value.has_value());
  CHECK(numbers[1].source == "own \xff");
  Database(store.path(), false, 100).execute("UPDATE machine_numbers SET origin = 'hearsay' WHERE value IS NULL");
  require_message([&] { store.machines(); }, store.path(), "gpu.curve of h200");

  store.set_findings({{"old", "", ""}});
  store.set_findings({{"first", "text", "detail"}, {"second", "a\nb", "", R"([{"number": "2"}])"}});
  REQUIRE(store.findings().size() == 2);
  CHECK(store.findings()[0].detail == "detail");
  CHECK(store.findings()[1].text == "a\nb");
  CHECK(store.findings()[0].places == "[]");
  CHECK(store.findings()[1].places == R"([{"number": "2"}])");
}

TEST_CASE("changed numbers of machines, findings and answers are rejected, and written anew") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  const auto write_machine = [&](const char* name) {
    store.set_machine(name, {{"gpu.hbm_bandwidth", 2e12, "B/s", kvcast::Origin::kDatasheet, 0.1, "data sheet"},
                             {"gpu.sms", 132.0, "", kvcast::Origin::kDatasheet, 0, ""}});
  };
  write_machine("a100"), write_machine("h200");
  store.set_findings({{"first", "text", "detail"}});
  store.set_answers({{"choose", "which?", "none", {"a", "  b"}, {{"best", {1}}}, 3}});
  REQUIRE(store.answers().size() == 1);
  CHECK(store.answers().front().details == std::vector<std::string>{"a", "  b"});
  CHECK(store.answers().front().data.at("best").at(0) == 1);
  const auto change = [&](const char* sql) { Database(store.path(), false, 100).execute(sql); };

  change("UPDATE machine_numbers SET value = 2.5e12 WHERE machine = 'h200' AND value = 2e12");
  require_message([&] { store.machines(); }, store.path(), "machine_numbers, h200 is damaged");
  write_machine("a100");  // another machine's numbers do not confirm these
  require_message([&] { store.machines(); }, store.path(), "machine_numbers, h200 is damaged");
  write_machine("h200");
  CHECK(store.machines().at("h200")[0].value == 2e12);
  change("UPDATE machine_numbers SET machine = 'h100' WHERE machine = 'h200' AND value = 132");
  require_message([&] { store.machines(); }, store.path(), "machine_numbers, h200 is damaged");

  change("UPDATE findings SET text = 'test'");
  require_message([&] { store.findings(); }, store.path(), "the table findings is damaged");
  store.set_findings({});
  CHECK(store.findings().empty());
  change("UPDATE answers SET runs = 2");
  require_message([&] { store.answers(); }, store.path(), "the table answers is damaged");
  // Without a checksum, as in older stores, the text itself is checked.
  change("UPDATE answers SET data = '{'"), change("DELETE FROM metadata WHERE value <> '' AND name LIKE '%answers%'");
  require_message([&] { store.answers(); }, store.path(), "answer 1 cannot be read");
  store.set_answers({});
  CHECK(store.answers().empty());
}

TEST_CASE("a damaged file is rejected or read correctly, and never causes a crash") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  {
    Store store = Store::open(dir.path(), Store::Open::kCreate);
    for (int i = 0; i < 50; ++i) store.put(i, result(fmt::format("{:02}", i)), "v1");
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
      store.for_each([](const Stored&) {});
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).find(path) != std::string::npos);
      ++refused;
    }
  };
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (std::size_t cut = 0; cut < whole.size(); cut += 4091) {
    write(whole.substr(0, cut));
    read_all();
  }
  // A file of 0 bytes is an empty database, not a store; every other cut loses pages that the header counts.
  CHECK(refused == static_cast<int>((whole.size() + 4090) / 4091));
  for (std::size_t place = 0; place < whole.size(); place += 4073) {
    std::string bytes = whole;
    for (std::size_t i = place; i < std::min(place + 16, bytes.size()); ++i)
      bytes[i] = static_cast<char>(bytes[i] ^ 0x5a);
    write(bytes);
    read_all();  // a flipped letter inside a text may go unseen; a crash or a message without the file may not
  }
}

TEST_CASE("a damaged index is rebuilt from the rows") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  {
    Store store = Store::open(dir.path(), Store::Open::kCreate);
    for (int i = 0; i < 50; ++i) store.put(i, result(fmt::format("key-number-{:02}", i)), "v1");
  }
  std::ifstream in(path, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  const auto check = [&](const char* pragma) { return Database(path, false, 1000).query_text(pragma); };
  int mended = 0;
  // The key is in the row and in the indices.
  for (std::size_t at = whole.find("key-number-17"); at != std::string::npos;
       at = whole.find("key-number-17", at + 1)) {
    std::string bytes = whole;
    bytes[at + 4] = 'N';
    std::ofstream(path, std::ios::binary) << bytes;
    if (check("PRAGMA quick_check(1)") != "ok" || check("PRAGMA integrity_check(1)") == "ok") continue;
    const Store store = Store::open(dir.path(), Store::Open::kExisting);
    if (store.get("key-number-17").has_value()) ++mended;  // otherwise it is the row's own key that was damaged
    CHECK(check("PRAGMA integrity_check(1)") == "ok");
  }
  CHECK(mended > 0);
}

TEST_CASE("rows for a store that has been deleted or replaced are an error, not lost") {
  namespace fs = std::filesystem;
  const kvcast::TemporaryDirectory dir;
  for (const bool whole_folder : {true, false}) {
    const std::string folder = dir.path() + (whole_folder ? "/a" : "/b");
    Store store = Store::open(folder, Store::Open::kCreate);
    REQUIRE(store.put(1, result("k"), "v1"));
    if (whole_folder) {
      fs::remove_all(folder);
    } else {  // another process has made a new one
      for (const char* file : {"/results.sqlite", "/results.sqlite-wal", "/results.sqlite-shm"})
        fs::remove(folder + file);
      Store::open(folder, Store::Open::kCreate);
    }
    CHECK_THROWS_WITH(store.put(2, result("l"), "v1"), Catch::Contains("was deleted or replaced"));
    CHECK_THROWS_AS(store.set_findings({}), kvcast::OutputError);  // the end of a sweep
    CHECK_THROWS_AS(store.set_metadata("name", "x"), kvcast::OutputError);
  }
}

TEST_CASE("a store that is a pipe or a device is rejected at once") {
  const kvcast::TemporaryDirectory dir;
  REQUIRE(mkfifo((dir.path() + "/results.sqlite").c_str(), 0600) == 0);
  for (const auto mode : {Store::Open::kCreate, Store::Open::kExisting}) {
    require_message([&] { Store::open(dir.path(), mode); }, "results.sqlite", "not a file");
  }
}

}  // namespace kvcast::tests
