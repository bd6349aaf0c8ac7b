// Verdicts, errors and averages of validation suites, by hand.
#include "validate/suite.hpp"

#include <catch2/catch.hpp>

namespace kvcast::tests {

using namespace validate;

namespace {

Case made(const char* id, const char* group, double expected, double predicted) {
  Case c;
  c.id = std::string(id);
  c.group = std::string(group);
  c.expected = expected;
  c.predicted = predicted;
  c.tolerance = 0.1;
  return c;
}

}  // namespace

TEST_CASE("a case agrees within its tolerance, both ends included") {
  // 10 % of 4 is 0.4: 3.6 and 4.4 are within tolerance, 4.5 is not.
  CHECK(verdict_of(made("a", "g", 4, 3.6), false) == Verdict::kAgrees);
  CHECK(verdict_of(made("a", "g", 4, 4.4), false) == Verdict::kAgrees);
  CHECK(verdict_of(made("a", "g", 4, 4.5), false) == Verdict::kOff);
  CHECK(verdict_of(made("a", "g", -4, -4.4), false) == Verdict::kAgrees);
}

TEST_CASE("a value that a parameter was chosen for is fitted, and never agrees") {
  Case c = made("a", "g", 4, 4);
  c.held_out = false;
  CHECK(verdict_of(c, false) == Verdict::kFitted);
}

TEST_CASE("readings of a setting bracket a value; the interval of one reading does not") {
  Case c = made("a", "g", 4, 6);
  c.low = 2, c.high = 8;
  CHECK(verdict_of(c, true) == Verdict::kBracketed);
  CHECK(verdict_of(c, false) == Verdict::kOff);
  c.low = 4.3;  // 4 + 10 % reaches it
  CHECK(verdict_of(c, true) == Verdict::kBracketed);
  c.low = 4.5;
  CHECK(verdict_of(c, true) == Verdict::kOff);
  // Bounds further apart than a factor of four say too little, and so do those that reach zero.
  c.low = 1.9, c.high = 8;
  CHECK(verdict_of(c, true) == Verdict::kUnanswered);
  c.low = -1;
  CHECK(verdict_of(c, true) == Verdict::kUnanswered);
  CHECK(verdict_of(c, false) == Verdict::kOff);
}

TEST_CASE("without a number on one side there is no error and no agreement") {
  Case c = made("a", "g", 4, 4);
  c.predicted.reset();
  CHECK(verdict_of(c, true) == Verdict::kUnanswered);
  CHECK(!relative_error(c));
  c = made("a", "g", 4, 4);
  c.expected.reset();
  CHECK(verdict_of(c, true) == Verdict::kUnmeasured);
  CHECK(!relative_error(made("a", "g", 0, 1)));
}

TEST_CASE("averages include only held-out cases with both numbers, over all and by group") {
  Suite suite;
  suite.cases = {made("a", "x", 10, 11), made("b", "y", 10, 8), made("c", "y", 10, 20), made("d", "y", 10, 10)};
  suite.cases[2].held_out = false;
  suite.cases[3].predicted.reset();
  for (Case& c : suite.cases) c.verdict = verdict_of(c, false);
  const auto all = summarise(suite);
  REQUIRE(all.size() == 3);
  CHECK(all[0].group.empty());
  CHECK(all[0].errors.n == 2);
  CHECK(all[0].errors.max == Approx(0.2));
  CHECK(all[1].group == "x");
  CHECK(all[1].errors.median == Approx(0.1));
  CHECK(all[2].errors.n == 1);
  CHECK(all[2].errors.bias == Approx(-0.2));
  CHECK(all[2].verdicts[static_cast<int>(Verdict::kUnanswered)] == 1);
  CHECK(all[2].verdicts[static_cast<int>(Verdict::kOff)] == 2);
}

TEST_CASE("intervals are summarised by coverage and width, exact numbers by equality") {
  const auto bounded = [](double expected, double low, double high) {
    Case c = made("a", "x", expected, (low + high) / 2);
    c.low = low, c.high = high;
    return c;
  };
  Suite suite;
  // Covered: 10 by 8 to 12, and 13.7 by 13.74 to 15, since it may be rounded from as much as 13.75. Not covered: 400 by
  // 401 to 1203.
  suite.cases = {bounded(10, 8, 12), bounded(13.7, 13.74, 15), bounded(400, 401, 1203)};
  // Exact: 256 equals 256, 10.3 may be 10.26, 0.015625 is not 0.0166.
  for (const auto& [expected, value] : {std::pair{256.0, 256.0}, {10.3, 10.26}, {0.015625, 0.0166}}) {
    suite.cases.push_back(bounded(expected, value, value));
  }
  suite.cases.push_back(bounded(1, 0, 2));
  suite.cases.back().held_out = false;
  suite.cases.push_back(made("no bounds", "x", 1, 1));
  // Readings from 1 to 9 cover 8; costs alone give 2 to 4.
  suite.cases.push_back(bounded(8, 1, 9));
  suite.cases.back().cost_low = 2, suite.cases.back().cost_high = 4;
  const IntervalSummary all = summarise(suite).front().intervals;
  CHECK(all.bounds.n == 4);
  CHECK(all.bounds.covered == 3);
  CHECK(all.bounds.median_width == Approx(2.25));  // 1.09, 1.5, 3, 9
  CHECK(all.costs.n == 4);
  CHECK(all.costs.covered == 2);
  CHECK(all.costs.median_width == Approx(1.75));  // 1.09, 1.5, 2, 3
  CHECK(all.exact == 3);
  CHECK(all.equal == 2);
  const auto document = to_json(suite);
  CHECK(document["summary"][0]["intervals"]["bounds"]["covered"] == 3);
  CHECK(document["summary"][0]["intervals"]["costs"]["median_width"].get<double>() == Approx(1.75));
  const std::string text = to_text(suite);
  CHECK(text.find("intervals of one reading: 2 of 4 hold the measured number, high over low 1.75") !=
        std::string::npos);
  CHECK(text.find("with all readings: 3 of 4 hold the measured number, high over low 2.25") != std::string::npos);
  CHECK(text.find("2 of 3 equal") != std::string::npos);
  suite.cases.pop_back();  // no readings are left
  CHECK(to_text(suite).find("    intervals: 2 of 3 hold") != std::string::npos);
}

TEST_CASE("errors of time-based numbers are listed separately from those of counts") {
  Suite suite;
  suite.cases = {made("a", "x", 10, 10), made("b", "x", 10, 12), made("c", "x", 10, 9)};
  suite.cases[0].origin = kvcast::Origin::kExact;
  suite.cases[1].origin = kvcast::Origin::kAssumed;
  suite.cases[2].origin = kvcast::Origin::kDatasheet;
  const GroupSummary all = summarise(suite).front();
  CHECK(all.errors.n == 3);
  CHECK(all.times.n == 2);
  CHECK(all.times.median == Approx(0.15));  // 0.2 and 0.1
  CHECK(to_json(suite)["summary"][0]["times"]["n"] == 2);
  CHECK(to_text(suite).find("of these 2 are based on times: error median 15.0 %") != std::string::npos);
}

TEST_CASE("a suite passes when every budget with a value is met") {
  Suite suite;
  CHECK(suite.passed());
  suite.budgets = {
      {"error", "%", 10, 9.0, false}, {"pairs in order", "%", 95, 96.0, true}, {"empty", "%", 1, {}, false}};
  CHECK(suite.passed());
  suite.budgets[1].value = 94.0;
  CHECK(!suite.passed());
  suite.budgets[1].value = 95.0;
  suite.budgets[0].value = 10.5;
  CHECK(!suite.passed());
  // A suite that has run has data; one that could not says why.
  suite.budgets = {{"empty", "%", 1, {}, false}};
  CHECK(!suite.passed());
  suite.status = "needs a GPU";
  CHECK(suite.passed());
}

TEST_CASE("the document keeps absent numbers absent, and names expected values by their kind") {
  Suite suite;
  suite.name = "papers";
  suite.expected_is = "published";
  suite.cases = {made("a", "x", 10, 11)};
  suite.cases[0].origin = kvcast::Origin::kLiterature;
  suite.cases.push_back(made("b", "x", 10, 11));
  suite.cases[1].predicted.reset();
  const auto document = to_json(std::vector<Suite>{suite});
  CHECK(document["passed"] == true);
  const auto& cases = document["suites"][0]["cases"];
  CHECK(cases[0]["published"] == 10);
  CHECK(cases[0]["error"].get<double>() == Approx(0.1));
  CHECK(cases[0]["origin"] == "literature");
  CHECK(cases[1]["predicted"].is_null());
  CHECK(cases[1]["error"].is_null());
  const std::string text = to_text(suite);
  CHECK(text.find("published") != std::string::npos);
  CHECK(text.find("+10.0 %") != std::string::npos);
}

}  // namespace kvcast::tests
