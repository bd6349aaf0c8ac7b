// Half-widths of intervals that are calibrated on rows left out.
#include <array>
#include <cmath>
#include <deque>
#include <numbers>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "evidence/intervals.hpp"

namespace kvcast::tests {

namespace {

using namespace evidence;

double angle_of(double points) { return to_angle(points, 100); }

// A row whose estimate of 50 points has an error of this many deviations.
struct Row {
  ScoreRecord record;
  LeftOutScore left_out;

  Row(const Row&) = delete;  // the estimate points to the record
  Row(double off, const std::string& table, const std::string& group, const std::string& task = "qa1") {
    constexpr double kDeviation = .05;
    record.paper = "P", record.table = table, record.model = "m", record.benchmark = "ruler", record.task = task;
    record.method = "quest", record.context = 16384, record.budget = 1024, record.full = 100;
    record.published = to_points(angle_of(50) + off * kDeviation, 100);
    left_out = {&record, {50, kDeviation}, 0, group};
  }
};

double within_normal(double spread) { return std::erf(spread / std::numbers::sqrt2); }

TEST_CASE("without rows the spread is that of a normal distribution") {
  CHECK(spread_of({}) == Approx(1.2816).epsilon(1e-4));
}

TEST_CASE("rows of the same table count as correlated") {
  // One row has the weight 0.1, the other table 1: 80 % are within where 0.1 + erf = 0.8 · 1.1 if the row is within.
  const Row row(1, "1", "a");
  const double one = spread_of({&row.left_out});
  CHECK(.1 + within_normal(one) == Approx(.8 * 1.1));
  CHECK(one < 1.28);
  // 9 rows of a table together have 9 · 0.1 / (1 + 8 · 0.1) = 0.5; as 9 tables 0.9.
  std::deque<Row> rows;
  for (int i = 0; i < 9; ++i) rows.emplace_back(.1, "1", "a");
  std::vector<const LeftOutScore*> left_out;
  for (const Row& r : rows) left_out.push_back(&r.left_out);
  CHECK(.5 + within_normal(spread_of(left_out)) == Approx(.8 * 1.5));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].record.table = std::to_string(i);
  CHECK(.9 + within_normal(spread_of(left_out)) == Approx(.8 * 1.9));
}

TEST_CASE("intervals of left-out rows come from the other groups in the same range of scores") {
  Row near(.5, "1", "a"), far(2, "2", "b"), kept(3, "3", "c");
  kept.left_out.estimate.mean = 95, kept.record.published = 95;
  CHECK(range_of(50, 100) == ScoreRange::kBetween);
  CHECK(range_of(95, 100) == ScoreRange::kEnds);
  CHECK(range_of(4, 50) == ScoreRange::kEnds);
  const std::vector<LeftOutScore> rows{near.left_out, far.left_out, kept.left_out};
  const std::vector<HeldOut> held = held_out(rows);
  REQUIRE(held.size() == 3);
  const double of_far = spread_of({&far.left_out}), of_near = spread_of({&near.left_out});
  CHECK(held[0].high == Approx(to_points(angle_of(50) + of_far * .05, 100)));
  CHECK(held[1].low == Approx(to_points(angle_of(50) - of_near * .05, 100)));
  CHECK(held[2].high == Approx(to_points(angle_of(95) + 1.28155 * .05, 100)).epsilon(1e-5));
  CHECK(held[0].within());
  CHECK_FALSE(held[1].within());
}

TEST_CASE("the error of a mean has a part that the number of tasks does not reduce") {
  CHECK(width_of_mean(1, 13) == 1);
  CHECK(width_of_mean(0, 4) == .5);
  CHECK(width_of_mean(.28, 2) == Approx(.8));
  // √(ρ + (1 − ρ) / 4) = 0.7 for ρ = (0.49 − 0.25) / 0.75 = 0.32.
  CHECK(common_needed(7, 10, 4) == Approx(.32));
  CHECK(common_needed(5, 10, 4) == 0);
  CHECK(common_needed(20, 10, 4) == 1);
  CHECK(common_needed(1, 0, 4) == 1);
  CHECK(common_of({}) == 1);
  const std::vector<HeldOutMean> means{{"a", 4, 7, 10}, {"b", 4, 5, 10}};
  CHECK(common_of(means, "b") == Approx(.32));
  CHECK(common_of(means) == Approx(.8 * .32));  // between the order statistics 0 and 0.32
  // The other group's share: ±5 for the error 7, and ±7 for the error 5.
  CHECK(share_of_means_within(means) == .5);
}

TEST_CASE("means are over the tasks of one method in a comparison, if there are at least four") {
  std::deque<Row> rows;
  for (const char* task : {"qa1", "qa2", "vt", "cwe"}) rows.emplace_back(.5, "1", "a", task);
  for (const char* task : {"qa1", "qa2", "vt"}) rows.emplace_back(.5, "2", "b", task);
  std::vector<ScoreRecord> records;
  std::vector<HeldOut> held;
  for (const Row& r : rows) {
    records.push_back(r.record);
    held.push_back({&r.left_out, 40, 70});
  }
  const std::vector<HeldOutMean> means = held_out_means(held, Comparisons(records));
  REQUIRE(means.size() == 1);
  CHECK(means[0].group == "a");
  CHECK(means[0].tasks == 4);
  CHECK(means[0].error == Approx(to_points(angle_of(50) + .025, 100) - 50));
  CHECK(means[0].half_width == Approx(20));  // above the estimate, where the published mean is
}

TEST_CASE("a budget stated as a share of the prompt is one comparison for all tasks") {
  const auto row = [](const char* table, const char* task, double context, double budget) {
    ScoreRecord r;
    r.paper = "P", r.table = table, r.model = "m", r.benchmark = "longbench", r.task = task, r.method = "quest";
    r.context = context, r.budget = budget, r.full = 50;
    return r;
  };
  // Table 1 states 10 % of prompts of 1000 to 4000 tokens, table 2 states 256 tokens.
  const std::vector<ScoreRecord> records{row("1", "a", 1000, 100), row("1", "b", 4000, 400), row("2", "a", 1000, 256),
                                         row("2", "b", 4000, 256), row("2", "b", 4000, 512)};
  const Comparisons comparisons(records);
  CHECK(comparisons.of(records[0]) == comparisons.of(records[1]));
  CHECK(comparisons.of(records[2]) == comparisons.of(records[3]));
  CHECK(comparisons.of(records[3]) != comparisons.of(records[4]));
  CHECK(comparisons.of(records[0]) != comparisons.of(records[2]));
}

}  // namespace

}  // namespace kvcast::tests
