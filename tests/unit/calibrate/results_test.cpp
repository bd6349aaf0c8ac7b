// Results of a machine that come in several files.
#include <catch2/catch.hpp>
#include <fstream>

#include "base/error.hpp"
#include "calibrate/results.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

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

TEST_CASE("files of one machine form one set of results, and a case in two of them has two passes") {
  const TemporaryDirectory folder;
  const std::string first = file(folder, "first.json", "H200", row("topk", 8, 2) + "," + row("gemm", 1, 3));
  const std::string second = file(folder, "second.json", "H200", row("topk", 8, 8) + "," + row("topk", 16, 5));
  const calibrate::Results both = calibrate::read_results(std::vector<std::string>{first, second});
  REQUIRE(both.rows.size() == 3);
  CHECK(both.file == first);
  CHECK(both.quantities.at("sm_count") == 132);
  // 2 s and 8 s: the geometric mean, where single passes would give results a factor of four apart.
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

TEST_CASE("JSON that cannot be read is located") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  const auto error = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_of([&] { calibrate::read_results(path); }).substr(path.size());
  };
  CHECK(error("{\"schema\": \"kvcast-kernels/1\",\n \"rows\": nul}") == ":2:13: not JSON: unexpected '}'");
  CHECK(error("{\"rows\": [1,\n") == ":2:1: not JSON: the file ends too early");
  CHECK(error("{\"rows\": \"\xff\"}") == ":1:11: not JSON: unexpected byte 0xff");
  CHECK(error("{\"rows\": 1e999}") == ":1:15: not JSON: a number is too large");
  // A parsed tree would keep only the last of two equal keys; equal keys of two objects are not duplicates.
  CHECK(error("{\"rows\": [{\"n\": 1}, {\"n\": 1,\n  \"n\": 2}]}") == ":2:3: duplicate key \"n\"");
}

TEST_CASE("values that no measurement can give are rejected with their row") {
  const TemporaryDirectory folder;
  const auto error = [&](const std::string& axes, const std::string& rest) {
    const std::string path =
        file(folder, "odd.json", "H200",
             R"({"bench": "topk", "mode": "cold", "work": {}, "axes": )" + axes + ", " + rest + "}");
    const std::string message = error_of([&] { calibrate::read_results(path); });
    return message.starts_with(path) ? message.substr(path.size()) : message;
  };
  CHECK(error("{\"threads\": 2}", R"("n": 3, "time_s": {"q1": 1, "median": 2, "q3": 2})") == "no error");
  CHECK(error("{\"threads\": 1.5}", R"("time_s": {"median": 2})") ==
        ": row 0: threads must be a whole number from 1, found 1.5");
  CHECK(error("{\"threads\": \"all\"}", R"("time_s": {"median": 2})") ==
        ": row 0: threads must be a whole number from 1, found \"all\"");
  CHECK(error("{}", R"("n": 0, "time_s": {"median": 2})") == ": row 0: n must be a whole number from 1, found 0");
  CHECK(error("{}", R"("time_s": {"median": 1e7})") ==
        ": row 0: the median time is 10000000 s, the limit is 1000000 s");
  CHECK(error("{}", R"("time_s": {"q1": -1, "median": 2})") == ": row 0: the q1 time is no positive number");
  CHECK(error("{}", R"("time_s": {"q1": 3, "median": 2, "q3": 4})") ==
        ": row 0: the quartiles of the times are out of order: 3, 2, 4 s");
  CHECK(error("{}", R"("time_s": {"q1": 1, "median": 2, "q3": 1.5})") ==
        ": row 0: the quartiles of the times are out of order: 1, 2, 1.5 s");
}

TEST_CASE("a missing axis is reported with the file of its row") {
  const TemporaryDirectory folder;
  const std::string first = file(folder, "first.json", "H200", row("topk", 8, 2));
  const std::string second = file(folder, "second.json", "H200", row("gemm", 8, 2));
  const calibrate::Results both = calibrate::read_results(std::vector<std::string>{first, second});
  CHECK(error_of([&] { both.rows[1].number("k"); }) == second + ": gemm n=8 cold: no number \"k\" among the axes");
  CHECK(error_of([&] { both.rows[0].word("op"); }) == first + ": topk n=8 cold: no word \"op\" among the axes");
  CHECK(error_of([&] { both.rows[0].of_work("bytes"); }) == first + ": topk n=8 cold: its work states no bytes");
}

}  // namespace kvcast::tests
