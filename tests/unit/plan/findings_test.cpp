// Findings worked out by hand, and compared with the table of results that they summarize.
#include "plan/findings.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "unit/plan/finding_rows.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using Catch::Contains;
using result::Result;
using result::Status;

std::vector<Finding> conclude(const std::vector<Result>& rows) { return findings_of(rows, {}); }

TEST_CASE("without experiments there is nothing to conclude") { CHECK(conclude({}).empty()); }

TEST_CASE("the setting that serves most requests at any batch and meets the floor is recommended") {
  // At 2000 tokens `lossy` serves most and scores 90 %; `fast` reaches 300 at batch 4, full KV 150 at batch 2.
  const std::vector<Result> rows = {
      row(1000, 8, "full", 900, 1),    row(2000, 1, "full", 100, 1),    row(2000, 2, "full", 150, 1),
      row(2000, 4, "full", 0, 1),      row(2000, 1, "fast", 90, 0.97),  row(2000, 2, "fast", 200, 0.97),
      row(2000, 4, "fast", 300, 0.97), row(2000, 4, "lossy", 500, 0.9), row(2000, 8, "fast", 0, 0.97)};
  const auto found = conclude(rows);
  REQUIRE(found.size() == 4);
  CHECK(found[0].title == "Best policy at the longest context");
  CHECK(found[0].text == "card: " + served("fast", 300, "2000", 4));
  CHECK_THAT(found[0].detail, Contains("predicted ruler score 97.0 % of full KV's (95.0 to 99.0 %), floor 95 %"));
  // Nothing was searched: the largest batch of both is compared, 200 / 150, not 300 / 150.
  CHECK_THAT(found[0].detail, Contains("relative to full KV: 1.33 times at equal batch 2"));
  CHECK_THAT(found[1].text, Contains("fast serves more requests than full KV from batch 2 on at 2000 tokens"));
  CHECK(found[2].text == "card: fast is bound by host link while decoding");
  CHECK_THAT(found[2].detail, Contains("full KV at batch 2: host link"));
  CHECK_THAT(found[3].text, Contains("link.h2d_bandwidth may change a step of fast by -10 % to +10 %"));
}

TEST_CASE("a finding's number and bars are reported for each group") {
  const auto found = conclude({row(2000, 1, "full", 100, 1), row(2000, 2, "full", 0, 1), row(2000, 1, "fast", 90, 0.97),
                               row(2000, 2, "fast", 250, 0.97), row(2000, 1, "slow", 150, 0.97)});
  const auto place = [&](std::size_t i) { return nlohmann::json::parse(found[i].places).at(0); };
  CHECK(place(0).at("place") == "card");
  CHECK(place(0).at("number") == "0.9 × full KV at batch 1");  // 90 of 100: full KV has no other batch
  CHECK(place(0).at("bars") ==
        nlohmann::json::parse(R"([{"label": "fast", "text": "250 requests/s", "from": 0.0, "to": 250.0},
    {"label": "slow", "text": "150 requests/s", "from": 0.0, "to": 150.0},
    {"label": "full KV", "text": "100 requests/s", "from": 0.0, "to": 100.0}])"));
  CHECK(place(1).at("number") == "batch 2");
  CHECK(place(1).at("bars").at(0).at("text") == "0.9 × full KV");
  CHECK(place(1).at("bars").at(1).at("text") == "full KV does not fit");
  CHECK(place(2).at("number") == "70 % host link");  // 7 of 10 ms
  CHECK(place(3).at("number") == "-10 % to +10 %");
}

TEST_CASE("a change that rounds to zero has no sign") {
  Result only = row(2000, 1, "fast", 90, 0.97);
  only.experiment.effects.resize(1);
  only.experiment.effects[0].shorter.step = 0.999, only.experiment.effects[0].longer.step = 1.02;
  const auto found = conclude({row(2000, 1, "full", 80, 1), only});
  CHECK(found[3].title == "Largest uncertainty");
  CHECK(nlohmann::json::parse(found[3].places).at(0).at("number") == "0 % to +2 %");
}

TEST_CASE(
    "a break-even batch applies to all larger ones and states up to which batch the difference is within uncertainty") {
  result::Effect trace{result::kTraceSample, {result::kTraceSample}, {}, {}};
  trace.longer.step = 1.3, trace.shorter.step = 0.7;
  const auto line = [&](const std::vector<double>& of_fast) {
    std::vector<Result> rows;
    std::int64_t batch = 1;
    for (const double rate : of_fast) {
      rows.push_back(row(2000, batch, "full", 100, 1));
      rows.push_back(row(2000, batch, "fast", rate, 0.97));
      rows.back().experiment.effects.push_back(trace);
      batch *= 2;
    }
    const auto found = conclude(rows);
    CHECK(nlohmann::json::parse(found[1].places).at(0).at("bars").size() == of_fast.size());
    return found[1].text;
  };
  CHECK(line({110, 120, 300}) ==
        "card: fast serves more requests than full KV from batch 1 (the smallest swept; within uncertainty below 4) on "
        "at 2000 "
        "tokens");
  CHECK(line({110, 90, 300}) == "card: fast serves more requests than full KV from batch 4 on at 2000 tokens");
  CHECK(line({90, 105, 120}) ==
        "card: fast serves more requests than full KV from batch 2 (within uncertainty) on at 2000 tokens");
}

TEST_CASE("a lead of a few per cent is not rounded away") {
  const auto found = conclude({row(2000, 1, "full", 100, 1), row(2000, 1, "fast", 104.9, 0.97)});
  CHECK(nlohmann::json::parse(found[0].places).at(0).at("number") == "1.05 × full KV at batch 1");
}

TEST_CASE("three seeds give one finding, that of the median") {
  std::vector<Result> rows;
  for (const auto& [seed, rate] : {std::pair("1", 300.0), {"2", 100.0}, {"3", 200.0}}) {
    rows.push_back(row(2000, 1, "fast", rate, 0.97));
    rows.back().subject.trace = seed;
    rows.back().subject.swept = {{"trace.seed", seed}};
  }
  const auto found = conclude(rows);
  CHECK(found[0].text == "card: " + served("fast", 200, "2000", 1));
  CHECK(nlohmann::json::parse(found[0].places).size() == 1);
}

TEST_CASE("full KV is recommended if it beats everything that meets the floor") {
  const auto found =
      conclude({row(2000, 1, "full", 100, 1), row(2000, 1, "lossy", 500, 0.3), row(2000, 1, "slow", 50, 0.99)});
  CHECK_THAT(found[0].text, Contains("full at 2000 tokens, batch 1: 100 requests/s"));
  CHECK_THAT(found[1].text, Contains("full KV serves most of all that meets the floor"));
}

TEST_CASE("a setting without a score is not recommended, and the reason is reported") {
  const auto found = conclude({row(2000, 1, "full", 100, 1), row(2000, 1, "unknown", 500, -1)});
  CHECK_THAT(found[0].text, Contains("full at 2000 tokens, batch 1: 100 requests/s"));
  CHECK_THAT(found[0].detail, Contains("not considered, because no score is predicted: unknown (no such heads)"));
  // If no score is requested, there is no floor, and the text states this.
  config::ScoreChoice none;
  none.benchmark = "none";
  const std::vector<Result> rows = {row(2000, 1, "full", 100, -1), row(2000, 1, "unknown", 500, -1)};
  const auto unheld = findings_of(rows, none);
  CHECK_THAT(unheld[0].text, Contains("unknown at 2000 tokens, batch 1: 500 requests/s"));
  CHECK_THAT(unheld[0].detail, Contains("no score was requested"));
}

TEST_CASE("the floor is configurable, and a score that may be below it comes with an alternative") {
  std::vector<Result> rows = {row(2000, 1, "full", 100, 1), row(2000, 1, "risky", 500, 0.96),
                              row(2000, 1, "safe", 300, 0.98)};
  rows[0].benchmark->interval = {1, 1};
  CHECK_THAT(conclude(rows)[0].text, Contains("risky at 2000 tokens, batch 1: 500 requests/s"));
  CHECK_THAT(conclude(rows)[0].detail,
             Contains("of those whose whole score interval is above the floor, safe serves most (300 requests/s)"));
  config::ScoreChoice strict = score_choice(config::parse_yaml("score: {benchmark: ruler, floor: 97 %}", "t"));
  CHECK_THAT(findings_of(rows, strict)[0].text, Contains("safe at 2000 tokens, batch 1: 300 requests/s"));
  strict.floor = 0.99;
  CHECK_THAT(findings_of(rows, strict)[0].text, Contains("full at 2000 tokens, batch 1: 100 requests/s"));
  const auto none_meets = findings_of(std::vector{rows[1], rows[2]}, strict);
  CHECK_THAT(none_meets[0].text, Contains("nothing that fits is predicted to keep 99 % of full KV's ruler score; safe "
                                          "comes nearest with 98.0 %"));
  CHECK(none_meets.size() == 1);  // the other findings are about the recommended setting
}

TEST_CASE("differences within the uncertainty of costs are reported as such") {
  // The costs of both are the same and cancel, except the effect of the second one's own trace.
  std::vector<Result> rows = {row(2000, 1, "first", 110, 1), row(2000, 1, "second", 100, 1)};
  CHECK_THAT(conclude(rows)[0].detail,
             Contains("relative to the next policy, second: 1.1 times at equal batch 1") && !Contains("tie"));
  result::Effect trace{result::kTraceSample, {result::kTraceSample}, {}, {}};
  trace.longer.step = 1.3, trace.shorter.step = 0.7;
  rows[1].experiment.effects.push_back(trace);
  CHECK_THAT(conclude(rows)[0].detail,
             Contains("times, a tie, at equal batch 1") && Contains("1 ties with it: second"));
}

TEST_CASE("groups that must not be compared are separated") {
  std::vector<Result> rows = {row(2000, 1, "full", 50, 1), row(2000, 1, "slow", 40, 1), row(2000, 1, "full", 200, 1),
                              row(2000, 1, "fast", 300, 1)};
  for (int i = 0; i < 4; ++i) rows[static_cast<std::size_t>(i)].subject.model = std::string(1, i < 2 ? 'a' : 'b');
  const auto found = conclude(rows);
  CHECK(found[0].text ==
        "a on card: " + served("full", 50, "2000", 1) + "\nb on card: " + served("fast", 300, "2000", 1));
  CHECK_THAT(found[1].text, Contains("a on card: full KV serves most") &&
                                Contains("\nb on card: fast serves more requests than full KV from batch 1 "));
}

TEST_CASE("an oracle is never recommended, and a sweep in which nothing fits is reported") {
  std::vector<Result> rows = {row(2000, 1, "full", 100, 1), row(2000, 1, "exact", 500, 1)};
  rows[1].subject.category = policy::Category::kOracle;
  CHECK_THAT(conclude(rows)[0].text, Contains("full at 2000 tokens, batch 1: 100 requests/s"));
  CHECK(conclude({row(2000, 1, "full", 0, 1)})[0].text == "card: nothing in this sweep fits");
  Result failed = rows[0];
  failed.status = Status::kFailed;
  CHECK(conclude({failed}).empty());
}

TEST_CASE("each benchmark that a sweep requests has its own findings") {
  std::vector<Result> rows;
  for (const char* benchmark : {"ruler", "longbench", "none"}) {
    for (const auto& [policy, rate, share] :
         {std::tuple("full", 100.0, 1.0), {"fast", 300.0, benchmark == std::string("ruler") ? 0.9 : 0.97}}) {
      rows.push_back(row(2000, 1, policy, rate, benchmark == std::string("none") ? -1 : share));
      rows.back().subject.settings = {{"score.benchmark", std::string(benchmark)}};
      rows.back().subject.swept = {{"score", benchmark}};
      if (rows.back().benchmark) rows.back().benchmark->benchmark = benchmark;
    }
  }
  const auto found = conclude(rows);
  // The fast policy keeps 90 % of one benchmark's score and 97 % of the other's; the third has no floor.
  CHECK(found[0].text == "card, score ruler: " + served("full", 100, "2000", 1) + "\ncard, score longbench: " +
                             served("fast", 300, "2000", 1) + "\ncard, score none: " + served("fast", 300, "2000", 1));
  CHECK_THAT(found[0].detail, Contains("predicted longbench score 97.0 %") && Contains("no score was requested"));
  rows.resize(2);
  rows[1].benchmark.reset();
  rows.erase(rows.begin());
  CHECK_THAT(conclude(rows)[0].text, Contains("nothing that fits is predicted to keep 95 % of full KV's ruler score"));
}

TEST_CASE("settings are described by the keys that apply to them, and lengths read back unchanged") {
  Result full = row(13000, 1, "full", 100, 1);
  full.subject.swept = {{"policy.name", "full"}, {"match.tokens_attended", "1"}};
  CHECK(conclude({full})[0].text == "card: " + served("full", 100, "13000", 1));
  Result solved = row(13312, 1, "quest", 100, 1);
  solved.subject.settings = {{"policy.budget", std::int64_t{64}}};
  solved.subject.swept = {{"policy.name", "quest"}, {"match.tokens_attended", "1"}};
  CHECK(conclude({solved})[0].text == "card: " + served("quest, budget 64, match.tokens_attended 1", 100, "13K", 1));
}

TEST_CASE("settings that differ by less than a per cent tie, and what tells them apart is named") {
  std::vector<Result> rows = {row(2000, 1, "full", 100, 1), row(2000, 1, "a", 300, 0.96), row(2000, 1, "b", 299, 0.99),
                              row(2000, 1, "c", 250, 0.99)};
  const std::string detail = conclude(rows)[0].detail;
  CHECK_THAT(detail,
             Contains("1 ties with it: b; they differ in predicted benchmark score, share of full KV from 96 % (a) "
                      "to 99 % (b)"));
  rows.resize(2), rows[1] = row(2000, 1, "a", 100.5, 1);
  CHECK(nlohmann::json::parse(conclude(rows)[0].places).at(0).at("number") == "as many requests/s as full KV");
}

TEST_CASE("findings describe the first groups of a sweep and state the number of others") {
  std::vector<Result> rows;
  for (int i = 0; i < 70; ++i) {
    for (const char* policy : {"full", "fast"}) {
      rows.push_back(row(2000, 1, policy, 100 + i, 1));
      rows.back().subject.hardware = fmt::format("card {}", i);
    }
  }
  // 64 groups of two results; the other 6 are counted.
  for (const Finding& finding : conclude(rows)) {
    CHECK(std::count(finding.text.begin(), finding.text.end(), '\n') == 64);
    CHECK_THAT(finding.text, Contains("card 63: ") && Contains("\n6 further groups are not described"));
    CHECK(nlohmann::json::parse(finding.places).size() == 64);
  }
  // Failed results are in no group.
  rows.push_back(row(2000, 1, "fast", 100, 1));
  rows.back().subject.hardware = "broken", rows.back().status = Status::kFailed;
  CHECK_THAT(conclude(rows)[0].text, Contains("\n6 further groups are not described"));
}

TEST_CASE("findings load the results that they describe and compare, not all rows") {
  // 3 policies at 2000 batches and one context: the best of each policy is compared with the best of all, at its own
  // batch and at equal batch, whatever the number of rows.
  std::vector<Result> rows;
  for (int batch = 1; batch <= 2000; ++batch) {
    for (const char* policy : {"full", "slow", "fast"}) {
      const double factor = policy[0] == 'f' && policy[1] == 'a' ? 3 : policy[0] == 's' ? 2 : 1;
      rows.push_back(row(2000, batch, policy, factor * batch, 1));
    }
  }
  const auto loaded = [&](std::size_t count) {
    const std::vector<Result> some(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
    Table table(some);
    // Without full KV there is no comparison by batch, whose table has an entry for each.
    std::erase_if(table.rows, [](const auto& r) { return r.uncompressed; });
    const auto found = findings(table.rows, table.texts, [&](std::size_t i) { return table.load(i); }, {});
    CHECK_THAT(found[0].text, Contains("fast at 2000 tokens, batch " + std::to_string(count / 3)));
    return table.loaded;
  };
  const int of_few = loaded(60);
  CHECK(of_few > 0);
  CHECK(loaded(rows.size()) == of_few);
}

}  // namespace
}  // namespace kvcast::tests
