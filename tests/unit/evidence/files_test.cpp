// The evidence and its parameters as files.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <fstream>

#include "base/error.hpp"
#include "evidence/predictor.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

namespace {

using namespace evidence;
using Catch::Contains;

std::string file(const kvcast::TemporaryDirectory& dir, const std::string& text) {
  const std::string path = dir.path() + "/f";
  std::ofstream(path) << text;
  return path;
}

std::string with_head(const char* rows) {
  return fmt::format("paper,table,model,benchmark,task,method,group,context,budget,full,simulated,published,noise\n{}",
                     rows);
}

TEST_CASE("records are written and read back sorted and without repetitions") {
  const kvcast::TemporaryDirectory dir;
  const ScoreRecord a{{"P", "Table 2, right", "m", "ruler", "qa1", "quest", 16384, 512, 81.25, 40.5, 4}, 44, .008};
  ScoreRecord b = a;
  b.table = std::string("Table 1"), b.budget = 256;
  ScoreRecord again = a;
  again.table = std::string("Table 3");
  const std::vector<ScoreRecord> read = read_records(file(dir, write_records({again, a, b})));
  REQUIRE(read.size() == 2);
  CHECK(read[0].table == "Table 1");
  CHECK(read[0].budget == 256);
  CHECK(read[1].table == "Table 2, right");
  CHECK(read[1].full == 81.25);
  CHECK(read[1].group == 4);
  CHECK(read[1].noise == .008);
}

TEST_CASE("invalid records are rejected with their location") {
  const kvcast::TemporaryDirectory dir;
  const auto error = [&](const std::string& text) {
    try {
      read_records(file(dir, text));
    } catch (const kvcast::UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK_THAT(error(""), Contains("the file is empty"));
  CHECK_THAT(error("paper,table\nP,1\n"), Contains("the column \"model\" is missing"));
  CHECK_THAT(error(with_head("P,1,m,ruler,qa1,quest,4,16384,512,81,140,44,0\n")),
             Contains("/f:2:") && Contains("simulated: expected a number from 0 to 100, found \"140\""));
  CHECK_THAT(error(with_head("P,1,m,ruler,qa1,quest,4,16384,512,81,nan,44,0\n")), Contains("found \"nan\""));
  CHECK_THAT(error(with_head("P,1,m\n")), Contains("/f:2"));
}

TEST_CASE("parameters are written and read back, and invalid ones are rejected") {
  const kvcast::TemporaryDirectory dir;
  Parameters p;
  p.components.variance[2] = .0125, p.components.scale = {1, .25, 2};
  p.spread[1][2] = {1.5, 1.25}, p.common[3][0] = .75;
  const std::string text = write_parameters(p);
  const Parameters read = read_parameters(file(dir, text));
  CHECK(read.components.variance[2] == .0125);
  CHECK(read.components.scale[1] == .25);
  CHECK(read.spread[1][2] == std::array{1.5, 1.25});
  CHECK(read.common[3][0] == .75);
  CHECK(write_parameters(read) == text);
  CHECK_THROWS_WITH(read_parameters(file(dir, text + "more: 1\n")), Contains("unknown key \"more\""));
  CHECK_THROWS_WITH(read_parameters(file(dir, "components: {}\nspread: {}\ncommon: {}\n")), Contains("missing"));
}

}  // namespace

}  // namespace kvcast::tests
