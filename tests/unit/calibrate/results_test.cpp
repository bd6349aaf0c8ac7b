// Results of a machine that come in several files.
#include <catch2/catch.hpp>
#include <fstream>

#include "base/error.hpp"
#include "calibrate/results.hpp"
#include "support/temporary_directory.hpp"

using namespace kvcast;

namespace {

std::string file(const TemporaryDirectory& folder, const char* name, const std::string& device,
                 const std::string& rows) {
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << R"({"schema": "kvcast-kernels/1", "environment": {"device": ")" << device
                      << R"(", "sm_count": 132}, "rows": [)" << rows << "]}";
  return path;
}

std::string row(const char* bench, int n, double seconds) {
  return R"({"bench": ")" + std::string(bench) + R"(", "mode": "cold", "axes": {"n": )" + std::to_string(n) +
         R"(}, "work": {}, "time_s": {"median": )" + std::to_string(seconds) + "}}";
}

}  // namespace

TEST_CASE("files of one machine are one set of results, and a case in two of them has two passes") {
  const TemporaryDirectory folder;
  const std::string first = file(folder, "first.json", "H200", row("topk", 8, 2) + "," + row("gemm", 1, 3));
  const std::string second = file(folder, "second.json", "H200", row("topk", 8, 8) + "," + row("topk", 16, 5));
  const calibrate::Results both = calibrate::read_results(std::vector<std::string>{first, second});
  REQUIRE(both.rows.size() == 3);
  CHECK(both.file == first);
  CHECK(both.quantities.at("sm_count") == 132);
  // 2 s and 8 s: the geometric mean, and half of the passes would have said four times as much.
  CHECK(both.rows[0].passes == std::vector<double>{2, 8});
  CHECK(both.rows[0].seconds == Approx(4));
  CHECK(both.rows[0].spread == Approx(3));
  CHECK(both.rows[1].seconds == 3);
  CHECK(both.rows[2].number("n") == 16);
}

TEST_CASE("results of two machines are not fitted together") {
  const TemporaryDirectory folder;
  const std::string h200 = file(folder, "h200.json", "H200", row("topk", 8, 2));
  const std::string h100 = file(folder, "h100.json", "H100", row("topk", 8, 2));
  try {
    calibrate::read_results(std::vector<std::string>{h200, h100});
    FAIL("accepted");
  } catch (const UserError& error) {
    CHECK(error.what() ==
          h100 + ": device is \"H100\", but \"H200\" in " + h200 + ": results of one machine are fitted together");
  }
}
