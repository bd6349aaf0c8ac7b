// Tables keep their values in all three output forms.
#include <catch2/catch.hpp>
#include <limits>
#include <sstream>

#include "report/table.hpp"

namespace kvcast::tests {

using kvcast::report::Table;
using nlohmann::json;

namespace {

Table three_rows() {
  Table table;
  table.begin_row();
  table.set("n", 1.0);
  table.set("name", std::string("a"));
  table.begin_row();
  table.set("late", 0.1);
  table.begin_row();
  table.set("n", 3.5);
  table.set("name", std::string("a"));
  return table;
}

}  // namespace

TEST_CASE("missing cells stay missing, before a column's first value and after its last") {
  const Table table = three_rows();
  CHECK(table.rows() == 3);
  CHECK(table.compact() == json::parse(R"({
    "rows": 3,
    "numbers": {"n": [1, null, 3.5], "late": [null, 0.1, null]},
    "texts": {"name": {"of": ["a"], "at": [0, null, 0]}}
  })"));
  CHECK(table.objects() == json::parse(R"([{"n": 1, "name": "a"}, {"late": 0.1}, {"n": 3.5, "name": "a"}])"));
  CHECK(std::isnan(table.number(1, "n")));
  CHECK(table.number(2, "n") == 3.5);
  CHECK(table.text(1, "name").empty());
  CHECK(table.text(0, "nobody").empty());
  CHECK(table.has_column("late"));
  CHECK_FALSE(table.has_column("early"));
  std::ostringstream csv;
  table.write_csv(csv);
  CHECK(csv.str() == "name,late,n\r\na,,1.0\r\n,0.1,\r\na,,3.5\r\n");
}

TEST_CASE("cells of earlier rows can be set last, and keep those that are there") {
  Table table = three_rows();
  table.set(0, "n", 7), table.set(2, "late", 0.2);
  table.set(1, "name", "b"), table.set(1, "new", "c");
  CHECK(table.compact() == json::parse(R"({
    "rows": 3,
    "numbers": {"n": [7, null, 3.5], "late": [null, 0.1, 0.2]},
    "texts": {"name": {"of": ["a", "b"], "at": [0, 1, 0]}, "new": {"of": ["c"], "at": [null, 0, null]}}
  })"));
}

TEST_CASE("a value that is not a number, or not a text, is a missing cell") {
  Table table;
  table.begin_row();
  table.set("x", std::numeric_limits<double>::quiet_NaN());
  table.set("y", std::numeric_limits<double>::infinity());
  table.set("t", std::string());
  CHECK(table.compact() == json::parse(R"({"rows": 1, "numbers": {}, "texts": {}})"));
}

TEST_CASE("the page gets six digits, the CSV file all of them") {
  Table table;
  table.begin_row();
  table.set("x", 1234567.891);
  table.set("y", 2e18);
  CHECK(table.compact()["numbers"]["x"][0].dump() == "1234570");  // 1.23457e6
  CHECK(table.compact()["numbers"]["y"][0].get<double>() == 2e18);
  std::ostringstream csv;
  table.write_csv(csv);
  CHECK(csv.str() == "x,y\r\n1234567.891,2e+18\r\n");
}

}  // namespace kvcast::tests
