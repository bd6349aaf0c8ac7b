// Seals of whole files: a sealed store is not verified again, and whatever changes its file is found as before.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "numbered_rows.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace store;

namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

Store reopened(const std::string& dir) { return Store::open(dir, Store::Open::kExisting); }

// A sealed store of so many rows, closed.
void seal_rows(const std::string& dir, int rows) {
  Store store = Store::open(dir, Store::Open::kCreate);
  for (int n = 0; n < rows; ++n) tests::put(store, n);
  store.seal_verified();
}

TEST_CASE("the seal is a hash of the hashes of the file's megabytes, and a store that has it is known to be whole") {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  CHECK_FALSE(Store::open(dir.path(), Store::Open::kCreate).was_sealed());
  seal_rows(dir.path(), 300);
  const std::string bytes = bytes_of(path);
  constexpr std::size_t kBlock = 1 << 20;
  REQUIRE(bytes.size() > kBlock);
  std::string hashes;
  for (std::size_t at = 0; at < bytes.size(); at += kBlock) hashes += content_hash(bytes.substr(at, kBlock));
  CHECK(bytes_of(path + "-seal") == content_hash(hashes));

  CHECK(reopened(dir.path()).was_sealed());
  CHECK(Store::open(dir.path(), Store::Open::kCreate).was_sealed());  // as a sweep opens it
  CHECK(reopened(dir.path()).was_sealed());                           // which has changed nothing
  const TemporaryDirectory other;
  fs::copy_file(path, other.path() + "/results.sqlite");
  CHECK_FALSE(reopened(other.path()).was_sealed());
  fs::copy_file(path + "-seal", other.path() + "/results.sqlite-seal");
  CHECK(reopened(other.path()).was_sealed());
  write_bytes(other.path() + "/results.sqlite-seal", "");
  CHECK_FALSE(reopened(other.path()).was_sealed());
}

TEST_CASE("a sealed file of which any byte is changed is verified again") {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/results.sqlite";
  seal_rows(dir.path(), 20);
  const std::string whole = bytes_of(path);
  for (std::size_t at = 0; at < whole.size(); at += 4099) {
    CAPTURE(at);
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_bytes(path, bytes);
    try {
      const Store store = reopened(dir.path());
      CHECK_FALSE(store.was_sealed());
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).find(path) != std::string::npos);
    }
  }
  write_bytes(path, whole);
  CHECK(reopened(dir.path()).was_sealed());
}

TEST_CASE("a row that is changed after the seal is dropped, and the store can be sealed anew") {
  const TemporaryDirectory dir;
  seal_rows(dir.path(), 5);
  Database(dir.path() + "/results.sqlite", false, 1000)
      .execute("UPDATE experiments SET batch = batch + 1 WHERE ordinal = 3");
  Store store = reopened(dir.path());
  CHECK_FALSE(store.was_sealed());
  CHECK_THROWS_AS(store.for_each([](const Stored&) {}), UserError);
  const std::string before = bytes_of(store.path() + "-seal");
  CHECK_FALSE(store.seal_verified());  // with a damaged row
  CHECK(bytes_of(store.path() + "-seal") == before);
  CHECK_FALSE(reopened(dir.path()).was_sealed());
  CHECK(store.drop_damaged().size() == 1);
  REQUIRE(tests::put(store, 3));
  store.seal_verified();
  CHECK(bytes_of(store.path() + "-seal") != before);
  CHECK(reopened(dir.path()).was_sealed());
}

TEST_CASE("a row that others damage between opening and sealing keeps a store from being sealed") {
  const TemporaryDirectory dir;
  seal_rows(dir.path(), 5);
  fs::remove(dir.path() + "/results.sqlite-seal");
  Store store = reopened(dir.path());
  Database(store.path(), false, 1000).execute("UPDATE experiments SET batch = batch + 1 WHERE ordinal = 3");
  CHECK_FALSE(store.seal_verified());
  Database(store.path(), false, 1000).execute("UPDATE experiments SET batch = batch - 1 WHERE ordinal = 3");
  CHECK(store.seal_verified());
  CHECK(reopened(dir.path()).was_sealed());
}

TEST_CASE("a version of a database changes with what is written by it and by others, and with nothing else") {
  const TemporaryDirectory dir;
  seal_rows(dir.path(), 1);
  const std::string path = dir.path() + "/results.sqlite", change = "UPDATE experiments SET batch = batch + 1";
  Database database(path, false, 1000);
  const Database::Version first = database.version();
  database.query_integer("SELECT count(*) FROM experiments");
  CHECK(database.version() == first);
  Database(path, false, 1000).execute(change);
  const Database::Version second = database.version();
  CHECK(second != first);
  database.execute(change);
  CHECK(database.version() != second);
}

TEST_CASE("rows that are still in the log are verified, and are in no seal") {
  const TemporaryDirectory dir;
  seal_rows(dir.path(), 5);
  Store writer = Store::open(dir.path(), Store::Open::kCreate);
  REQUIRE(writer.was_sealed());
  REQUIRE(tests::put(writer, 5));
  Database(writer.path(), false, 1000).execute("UPDATE experiments SET batch = batch + 1 WHERE ordinal = 5");
  REQUIRE(fs::file_size(writer.path() + "-wal") > 0);
  Store reader = reopened(dir.path());  // the file itself has the bytes that were sealed
  CHECK_FALSE(reader.was_sealed());
  CHECK(reader.drop_damaged().size() == 1);
  CHECK(reader.keys().size() == 5);
}

TEST_CASE("a store that is being read is not sealed half") {
  const TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  tests::put(store, 0);
  {
    Database other(store.path(), false, 1000);
    const Snapshot snapshot(other);
    REQUIRE(other.query_integer("SELECT count(*) FROM experiments") == 1);
    tests::put(store, 1);  // stays in the log as long as the other reads the state before it
    Database(store.path(), false, 0).execute("PRAGMA wal_checkpoint");
    CHECK(other.file_hash().empty());
  }
  store.seal_verified();
  CHECK(reopened(dir.path()).was_sealed());
}

}  // namespace
}  // namespace kvcast::tests
