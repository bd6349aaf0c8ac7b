// Rows of published tables that have no score.
#include "score/table.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace score;

namespace {

using Catch::Contains;

std::string table(const TemporaryDirectory& folder, const std::string& rows) {
  const std::string path = folder.path() + "/t.csv";
  std::ofstream(path) << "paper,table,model,benchmark,context,task,method,budget,budget_unit,value,unit\n" << rows;
  return path;
}

TEST_CASE("rows without a score are omitted, with their location and the reason") {
  const TemporaryDirectory folder;
  std::vector<LeftOutRow> left_out;
  const std::string row = "P,T,M,RULER,4K,vt,Quest,256,tokens,";
  const std::vector<PublishedRow> rows =
      read_table(table(folder, row + "50,\n" + row + "0.5,fraction\n" + row + "50,furlong\n" + row + "50,fraction\n" +
                                   row + "n/a,\n"),
                 &left_out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].value == 50);
  CHECK(rows[1].value == 50);
  REQUIRE(left_out.size() == 3);
  CHECK(left_out[0].where.line == 4);
  CHECK_THAT(left_out[0].reason, Contains("\"furlong\" is not a unit of scores") && Contains("score_0_100"));
  CHECK(left_out[1].where.line == 5);
  CHECK(left_out[1].reason == "value: expected a score from 0 to 1, found \"50\"");
  CHECK(left_out[2].reason == "value: expected a score from 0 to 100, found \"n/a\"");
}

TEST_CASE("shares of 1 in a table of points are rejected, with the unit that they need") {
  const TemporaryDirectory folder;
  const std::string row = "P,T,M,RULER,4K,vt,Quest,256,tokens,";
  CHECK_THROWS_WITH(read_table(table(folder, row + "0.5,\n" + row + "0.9,accuracy_%\n")),
                    Contains("t.csv:2:1: no score of the table is above 0.9 of 100 points") && Contains("`fraction`"));
  CHECK(read_table(table(folder, row + "0.5,\n" + row + "1.5,\n")).size() == 2);
  CHECK(read_table(table(folder, row + "0,\n")).size() == 1);
}

TEST_CASE("a table whose only rows have no score is rejected at the first of them") {
  const TemporaryDirectory folder;
  CHECK_THROWS_WITH(read_table(table(folder, "P,T,M,RULER,4K,vt,Quest,256,tokens,50,x\n")),
                    Contains("t.csv:2:") && Contains("unit: \"x\" is not a unit of scores"));
  CHECK_THROWS_WITH(read_table(table(folder, "")), Contains("no scores in the table"));
}

}  // namespace
}  // namespace kvcast::tests
