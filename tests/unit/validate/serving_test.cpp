// Load points of engines: the reader, numbers of requests worked out by hand, and the summaries of errors.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "config/run.hpp"
#include "validate/load_points.hpp"
#include "validate/serving.hpp"

namespace kvcast::tests {

using namespace validate;
using Catch::Contains;

namespace {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "kvcast_load_points") {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::filesystem::path path_;
};

const std::string kHead =
    "campaign: Example\nsource: nobody\nrows: 3\npoint_count: 2\nleft_out_count: 1\n"
    "defaults: {policy: full, traffic: {output_tokens: {mean: 90, cv: 1}}}\n"
    "left_out:\n  - {ids: [X3], reason: no numbers}\ngroups:\n";
const std::string kGroup =
    "  - name: loop\n    chosen_knowing: true\n    spread: 0.1\n    skip_first_wave: true\n    requests_per_client: "
    "10\n"
    "    config: {model: llama-3.1-8b, deployment: {replicas: 1, routing: prefix}, traffic: {output_tokens: 100}}\n"
    "    stated: {kv_capacity_tokens: 5000}\n"
    "    set: [deployment.tensor_parallel, traffic.prompt_tokens, traffic.concurrency]\n"
    "    measured: [ttft_ms.p50, tpot_ms.p50]\n    compare: [tpot_ms.p50, ttft_ms.p50]\n";
const std::string kPoints = "    points:\n      - [X1, 2, 1000, 8, 12, 5]\n      - [X2, 4, 2000, 16, ~, 6]\n";

std::string refusal(const Folder& folder, const std::string& text) {
  try {
    read_load_points(folder.write("bad.yaml", text));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string with_change(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("a load point is a run: defaults, the group's keys and its own, with lengths spread") {
  const Folder folder;
  const std::vector<LoadPoint> points = read_load_points(folder.write("a.yaml", kHead + kGroup + kPoints));
  REQUIRE(points.size() == 2);
  const LoadPoint& p = points[0];
  CHECK(p.id == "X1");
  CHECK(p.config.find("deployment")->canonical() == config::parse_yaml("{tensor_parallel: 2}", "t").canonical());
  const char* const traffic =
      "{prompt_tokens: {low: 900, high: 1100}, output_tokens: {low: 90, high: 110}, concurrency: 8, requests: 80}";
  CHECK(p.config.find("traffic")->canonical() == config::parse_yaml(traffic, "t").canonical());
  CHECK(p.chosen_knowing);
  CHECK(p.clients == 8);
  CHECK(p.skipped == 8);
  CHECK(p.prompt_tokens == 1000);
  CHECK(p.output_tokens == 100);
  CHECK(p.kv_capacity_tokens == 5000);
  CHECK(p.compared == std::vector<std::string>{"tpot_ms.p50", "ttft_ms.p50"});
  CHECK(p.measured.at("tpot_ms.p50") == 5);
  CHECK(points[1].compared == std::vector<std::string>{"tpot_ms.p50"});  // the other was not published
}

TEST_CASE("a mistake in a file of load points is located") {
  const Folder folder;
  const std::string whole = kHead + kGroup + kPoints;
  CHECK_THAT(refusal(folder, with_change(whole, "12, 5]", "5]")),
             Contains("bad.yaml:21:") && Contains("id and 5 numbers"));
  CHECK_THAT(refusal(folder, with_change(whole, "12, 5]", "12, -5]")), Contains("bad.yaml:21:"));
  CHECK_THAT(refusal(folder, with_change(whole, "rows: 3", "rows: 4")), Contains("rows: 4 stated, 3 counted"));
  CHECK_THAT(refusal(folder, with_change(whole, "[ttft_ms.p50, t", "[ttft_ms.p42, t")), Contains("\"ttft_ms.p42\""));
  CHECK_THAT(refusal(folder, with_change(whole, "compare: [tpot_ms.p50", "compare: [e2e_ms.p50")),
             Contains("\"e2e_ms.p50\" is not measured"));
  CHECK_THAT(refusal(folder, with_change(whole, "    spread", "    sprad")), Contains("sprad"));
  CHECK_THAT(refusal(folder, with_change(whole, ", traffic.concurrency]", ", traffic.rate]")),
             Contains("no traffic.concurrency"));
  folder.write("bad.yaml", whole), folder.write("a.yaml", whole);
  CHECK_THROWS_WITH(read_all_load_points(std::filesystem::path(folder.write("b.txt", "")).parent_path().string()),
                    Contains("point X1 appears twice"));
}

TEST_CASE("numbers of requests leave out the first ones") {
  // Three requests; the first does not count.
  const std::vector<ServedRequest> requests = {{0, 10, 5, 0, 9, 9}, {1, 100, 11, 1, 2, 4}, {2, 50, 1, 2, 5, 5}};
  const auto number = [&](const char* name) { return *served_number(name, requests, 1); };
  CHECK(number("ttft_ms.mean") == Approx(2000));
  CHECK(number("ttft_ms.p50") == Approx(2000));
  CHECK(number("ttft_ms.p90") == Approx(2800));
  CHECK(number("tpot_ms.mean") == Approx(200));  // the last has one token
  CHECK(number("itl_ms.mean") == Approx(200));
  CHECK(number("e2e_ms.mean") == Approx(3000));
  CHECK(number("e2e_per_token_ms.mean") == Approx((3000 / 11.0 + 3000) / 2));
  CHECK(number("duration_s") == Approx(4));
  CHECK(number("requests_per_s") == Approx(0.5));
  CHECK(number("output_tokens_per_s") == Approx(3));
  CHECK(number("total_tokens_per_s") == Approx(40.5));
  CHECK(number("input_tokens_per_s") == Approx(37.5));
  CHECK_FALSE(served_number("itl_ms.p50", requests, 1));
  CHECK_FALSE(served_number("ttft_ms.mean", requests, 3));
}

TEST_CASE("names of numbers are paths of results") {
  CHECK(path_of_number("ttft_ms.p99") == "serving.ttft_s.p99");
  CHECK(path_of_number("e2e_per_token_ms.mean") == "serving.e2e_s.mean");
  CHECK(path_of_number("duration_s") == "serving.duration_s");
  CHECK(kind_of_number("itl_ms.mean") == "TPOT");
  CHECK(kind_of_number("requests_per_s") == "throughput");
  CHECK(kind_of_number("itl_ms.max").empty());
  CHECK(kind_of_number("tokens").empty());
}

TEST_CASE("errors are summed up by campaign, kind and knowledge, and budgets take them together") {
  // TPOT of 1 + 0.1 i seconds where 1 was measured.
  std::vector<ServedPoint> points(3);
  FirstPredictions first;
  for (std::size_t i = 0; i < 3; ++i) {
    ServedPoint& p = points[i];
    p.point.id = "X" + std::to_string(i), p.point.campaign = "Example", p.point.group = "loop";
    p.point.compared = {"tpot_ms.mean"}, p.point.measured = {{"tpot_ms.mean", 1000}};
    p.point.chosen_knowing = i == 2;
    p.served.service.emplace();
    p.requests = {{0, 10, 2, 0, 0, 1 + 0.1 * static_cast<double>(i)}};
    first[{p.point.id, "tpot_ms.mean"}] = 1500;
  }
  points.emplace_back(points[0]).served.service.reset();
  points.back().served.error = "a reason";
  const Suite suite = serving_suite(points, first);
  const auto& lines = suite.detail["lines"];
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["now"]["n"] == 2);
  CHECK(lines[0]["now"]["median"].get<double>() == Approx(0.05));
  CHECK(lines[0]["first"]["median"].get<double>() == Approx(0.5));
  CHECK(lines[0]["unanswered"] == 1);
  CHECK(lines[1]["known"] == true);
  CHECK(lines[1]["now"]["median"].get<double>() == Approx(0.2));
  CHECK(suite.detail["unanswered"]["loop"] == "a reason");
  REQUIRE(suite.budgets.size() == 2);
  CHECK(*suite.budgets[0].value == Approx(10));  // median of 0, 10 and 20 %
  CHECK_FALSE(suite.budgets[0].passed());
  CHECK(suite.budgets[1].passed());
  const Folder folder;
  const FirstPredictions again = read_first_predictions(folder.write("f.csv", first_predictions_text(suite)));
  CHECK(again.at({"X1", "tpot_ms.mean"}) == Approx(1100));
  CHECK_THAT(serving_text(suite), Contains("not predicted, loop: a reason"));
}

TEST_CASE("points of a pair are read, also those that are not compared") {
  const Folder folder;
  const std::string left_out = with_change(with_change(kGroup, "    compare: [tpot_ms.p50, ttft_ms.p50]\n", ""),
                                           "  - name: loop", "  - name: busy\n    left_out: a queue");
  const std::string more = left_out + "    points:\n      - [X4, 2, 1000, 8, 14, 7]\n      - [X5, 2, 1000, 8, 15, 8]\n";
  const std::string head =
      with_change(with_change(kHead, "rows: 3", "rows: 5"), "left_out_count: 1", "left_out_count: 3");
  const std::string pairs = "pairs:\n  - {kind: tier, number: ttft_ms.p50, ids: [[X1, X4]]}\n";
  const std::string text = head + kGroup + kPoints + more;
  CHECK(read_load_points(folder.write("a.yaml", text)).size() == 2);
  const std::vector<LoadPoint> points = read_load_points(folder.write("a.yaml", text + pairs));
  REQUIRE(points.size() == 3);
  CHECK(points[2].id == "X4");
  CHECK(points[2].compared.empty());
  REQUIRE(points[2].pairs.size() == 1);
  CHECK(points[2].pairs[0].than == "X1");
  CHECK(points[0].pairs.empty());

  const auto refused = [&](const std::string& from, const std::string& to) {
    return refusal(folder, text + with_change(pairs, from, to));
  };
  CHECK_THAT(refused("X4]", "X3]"), Contains("bad.yaml:") && Contains("no point X3 here"));
  CHECK_THAT(refused("[X1, X4]", "[X2, X4]"), Contains("ttft_ms.p50 of X2 was not measured"));
  CHECK_THAT(refused("[X1, X4]", "[X1]"), Contains("a pair has two ids"));
  CHECK_THAT(refused("[X1, X4]", "[X1, X1]"), Contains("no pair with itself"));
  CHECK_THAT(refused("tier", "engine"), Contains("balancer"));
  CHECK_THAT(refused("ttft_ms.p50", "ttft_ms.max"), Contains("no measured number"));
}

TEST_CASE("a pair is right if the prediction differs in the same direction") {
  // Requests a second are 1 over the last token's time: predicted 1, 2 and 1/2.
  const double last[] = {1, 0.5, 2}, measured[] = {10, 20, 10.5};
  std::vector<ServedPoint> points(3);
  for (std::size_t i = 0; i < 3; ++i) {
    ServedPoint& p = points[i];
    p.point.id = "X" + std::to_string(i), p.point.campaign = "Example", p.point.group = "loop";
    p.point.measured = {{"requests_per_s", measured[i]}};
    p.served.service.emplace();
    p.requests = {{0, 10, 2, 0, 0, last[i]}};
  }
  points[1].point.pairs = {{"apart", "requests_per_s", "X0"}};  // twice as many in both
  points[2].point.pairs = {{"apart", "requests_per_s", "X0"},   // 5 % more: not judged
                           {"apart", "requests_per_s", "X1"}};  // fewer in both
  points[0].point.pairs = {{"cache", "requests_per_s", "X2"}};  // 5 % fewer: not judged
  Suite suite = serving_suite(points, {});
  const auto& lines = suite.detail["pairs"];
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["kind"] == "cache");
  CHECK(lines[0]["differ"] == 0);
  CHECK(lines[1]["pairs"] == 3);
  CHECK(lines[1]["differ"] == 2);
  CHECK(lines[1]["right"] == 2);
  CHECK(lines[1]["of"][0]["measured"].get<double>() == Approx(2));
  CHECK(lines[1]["of"][2]["predicted"].get<double>() == Approx(0.25));
  CHECK_FALSE(lines[1]["of"][1].contains("right"));
  REQUIRE(suite.budgets.size() == 1);
  CHECK(suite.budgets[0].name == "pairs, apart: right signs");
  CHECK(*suite.budgets[0].value == Approx(100));

  points[1].point.measured["requests_per_s"] = 5;  // half as many, where twice as many are predicted
  points[2].served.service.reset();                // and no answer where twice as many were measured
  suite = serving_suite(points, {});
  CHECK(suite.detail["pairs"][1]["differ"] == 2);
  CHECK(suite.detail["pairs"][1]["right"] == 0);
  CHECK(*suite.budgets[0].value == Approx(0));
  CHECK_FALSE(suite.budgets[0].passed());
  CHECK_THAT(serving_text(suite), Contains("X0-X1 2.00 0.50") && Contains("X1-X2 - 2.10"));
}

}  // namespace kvcast::tests
