#include <catch2/catch.hpp>
#include <fstream>

#include "base/csv.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

namespace {

using Fields = std::vector<std::string>;

std::vector<CsvRow> read(const std::string& text) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/t.csv";
  std::ofstream(path, std::ios::binary) << text;
  return read_csv(path, "the table");
}

std::string error(const std::string& text) {
  const std::string message = error_of([&] { read(text); });
  return message.substr(message.rfind('/') + 1);
}

TEST_CASE("rows are read with the locations of their fields") {
  const std::vector<CsvRow> rows = read("a,b,c\n1, 22 ,\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].fields == Fields{"a", "b", "c"});
  CHECK(rows[1].fields == Fields{"1", "22", ""});
  CHECK(rows[1].where.line == 2);
  CHECK(rows[1].at(1).column == 4);
}

TEST_CASE("a byte order mark, carriage returns, blank lines and a missing last line end change nothing") {
  const std::vector<CsvRow> rows = read(
      "\xef\xbb\xbf"
      "a,b\r\n\r\n1,2\r\n\n3,4");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].fields == Fields{"a", "b"});
  CHECK(rows[0].where.column == 1);
  CHECK(rows[1].fields == Fields{"1", "2"});
  CHECK(rows[2].fields == Fields{"3", "4"});
  CHECK(rows[2].where.line == 5);
  CHECK(read("").empty());
  CHECK(read("\xef\xbb\xbf\n \n").empty());
}

TEST_CASE("quotes keep commas, blanks, quotes and line ends; a backslash is a character") {
  const std::vector<CsvRow> rows = read("\"a, b\" ,\" c \"\n\"d \"\"e\"\"\",f\\n\n\"g\nh\",i\n\"\",j");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].fields == Fields{"a, b", " c "});
  CHECK(rows[1].fields == Fields{"d \"e\"", "f\\n"});
  CHECK(rows[2].fields == Fields{"g\nh", "i"});
  CHECK(rows[3].fields == Fields{"", "j"});
  CHECK(rows[3].where.line == 5);
}

TEST_CASE("malformed CSV is rejected with the location where it begins") {
  CHECK(error("a,b\n1,\"2\n3,4\n") == "t.csv:2:3: this quote is not closed");
  CHECK(error("a,b\n\"1\"2,3\n") == "t.csv:2:4: expected a comma after the quoted field");
  // A table in Latin-1, and the same in UTF-8.
  CHECK(error("\xef\xbb\xbf"
              "a,b\n1,\"x\n\xe9\"\n") == "t.csv:3:1: byte 0xe9 is no UTF-8; save the table as UTF-8");
  CHECK(error("\xef\xbb\xbf"
              "a\xe9") == "t.csv:1:2: byte 0xe9 is no UTF-8; save the table as UTF-8");
  CHECK(read("a,b\n1,\xc3\xa9\n").at(1).fields.at(1) == "\xc3\xa9");
  CHECK(error_of([] { read_csv("/no/such.csv", "the table"); }) == "/no/such.csv: cannot read the table");
  CHECK(error_of([] { read_csv("/", "the table"); }) == "/: cannot read the table (not a file)");
}

}  // namespace
}  // namespace kvcast::tests
