// Verdicts, errors and averages of validation suites, by hand.
#include "validate/suite.hpp"

#include <catch2/catch.hpp>

using namespace kvcast::validate;

namespace {

Case made(const char* id, const char* group, double expected, double predicted) {
  Case c;
  c.id = id;
  c.group = group;
  c.expected = expected;
  c.predicted = predicted;
  c.tolerance = 0.1;
  return c;
}

}  // namespace

TEST_CASE("a case agrees within its tolerance, both ends included") {
  // 10 % of 4 is 0.4: 3.6 and 4.4 are in, 4.5 is not.
  CHECK(verdict_of(made("a", "g", 4, 3.6), false) == Verdict::kAgrees);
  CHECK(verdict_of(made("a", "g", 4, 4.4), false) == Verdict::kAgrees);
  CHECK(verdict_of(made("a", "g", 4, 4.5), false) == Verdict::kOff);
  CHECK(verdict_of(made("a", "g", -4, -4.4), false) == Verdict::kAgrees);
}

TEST_CASE("what a parameter was chosen for is fitted, and never agrees") {
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

TEST_CASE("averages take held-out cases with both numbers only, over all and by group") {
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
}

TEST_CASE("the document keeps absent numbers absent, and names expected values for what they are") {
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
