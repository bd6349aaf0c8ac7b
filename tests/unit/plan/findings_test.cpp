// Findings worked out by hand, and compared with the table of results that they summarize.
#include "plan/findings.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <random>

#include "plan/compare.hpp"
#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace kvcast::plan;
using Catch::Contains;
using result::Result;
using result::Status;

// A result of 0 tokens/s does not fit; a score below 0 has none.
Result row(std::int64_t context, std::int64_t batch, const std::string& policy, double tokens_per_s, double score) {
  Result r = small_result();
  r.subject.model = "model", r.subject.hardware = "card", r.subject.trace = "text";
  r.subject.policy = policy, r.subject.policy_category = "retrieval", r.subject.settings.clear(),
  r.subject.swept.clear();
  r.subject.prompt_tokens = context, r.subject.decode_tokens = 512, r.subject.batch = batch;
  r.experiment.tokens_per_s = tokens_per_s;
  r.experiment.tpot_mean_s = tokens_per_s > 0 ? static_cast<double>(batch) / tokens_per_s : 0;
  if (tokens_per_s == 0) r.status = Status::kOom, r.experiment.oom.emplace().pool = "hbm";
  if (score >= 0) {
    auto& b = r.benchmark.emplace();
    b.benchmark = "ruler", b.share_of_full = score, b.interval = {score - 0.02, std::min(1.0, score + 0.02)};
  } else {
    r.benchmark_refused = "no such heads";
  }
  return r;
}

std::vector<Finding> conclude(const std::vector<Result>& rows) { return findings(rows, {}); }

TEST_CASE("without experiments there is nothing to conclude") { CHECK(conclude({}).empty()); }

TEST_CASE("the fastest setting of any batch that meets the floor is recommended") {
  // At 2000 tokens `lossy` is fastest and scores 90 %; `fast` reaches 300 at batch 4, full KV 150 at batch 2.
  const std::vector<Result> rows = {
      row(1000, 8, "full", 900, 1),    row(2000, 1, "full", 100, 1),    row(2000, 2, "full", 150, 1),
      row(2000, 4, "full", 0, 1),      row(2000, 1, "fast", 90, 0.97),  row(2000, 2, "fast", 200, 0.97),
      row(2000, 4, "fast", 300, 0.97), row(2000, 4, "lossy", 500, 0.9), row(2000, 8, "fast", 0, 0.97)};
  const auto found = conclude(rows);
  REQUIRE(found.size() == 4);
  CHECK(found[0].title == "Best policy at the longest context");
  CHECK(found[0].text == "card: fast (300 tokens/s at 2000 tokens, batch 4)");
  CHECK_THAT(found[0].detail, Contains("predicted ruler score 97.0 % of full KV's (95.0 to 99.0 %), floor 95 %"));
  // Full KV at its own best batch, named: 300 / 150.
  CHECK_THAT(found[0].detail, Contains("2 times as fast as full KV at batch 2"));
  CHECK_THAT(found[1].text, Contains("fast is faster than full KV from batch 2 on at 2000 tokens"));
  CHECK(found[2].text == "card: fast is bound by host link");
  CHECK_THAT(found[2].detail, Contains("full KV at batch 2: host link"));
  CHECK_THAT(found[3].text, Contains("link.h2d_bandwidth may change a step of fast by -10 % to +10 %"));
}

TEST_CASE("a finding's number and bars are reported for each group") {
  const auto found = conclude({row(2000, 1, "full", 100, 1), row(2000, 2, "full", 0, 1), row(2000, 1, "fast", 90, 0.97),
                               row(2000, 2, "fast", 250, 0.97), row(2000, 1, "slow", 150, 0.97)});
  const auto place = [&](std::size_t i) { return nlohmann::json::parse(found[i].places).at(0); };
  CHECK(place(0).at("place") == "card");
  CHECK(place(0).at("number") == "2.5 × full KV");  // 250 of 100 tokens/s
  CHECK(place(0).at("bars") ==
        nlohmann::json::parse(R"([{"label": "fast", "text": "250 tokens/s", "from": 0.0, "to": 250.0},
    {"label": "slow", "text": "150 tokens/s", "from": 0.0, "to": 150.0},
    {"label": "full KV", "text": "100 tokens/s", "from": 0.0, "to": 100.0}])"));
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
        "card: fast is faster than full KV from batch 1 (the smallest swept; within uncertainty below 4) on at 2000 "
        "tokens");
  CHECK(line({110, 90, 300}) == "card: fast is faster than full KV from batch 4 on at 2000 tokens");
  CHECK(line({90, 105, 120}) ==
        "card: fast is faster than full KV from batch 2 (within uncertainty) on at 2000 tokens");
}

TEST_CASE("a lead of a few per cent is not rounded away") {
  const auto found = conclude({row(2000, 1, "full", 100, 1), row(2000, 1, "fast", 104.9, 0.97)});
  CHECK(nlohmann::json::parse(found[0].places).at(0).at("number") == "1.05 × full KV");
}

TEST_CASE("three seeds give one finding, that of the median") {
  std::vector<Result> rows;
  for (const auto& [seed, rate] : {std::pair("1", 300.0), {"2", 100.0}, {"3", 200.0}}) {
    rows.push_back(row(2000, 1, "fast", rate, 0.97));
    rows.back().subject.trace = seed;
    rows.back().subject.swept = {{"trace.seed", seed}};
  }
  const auto found = conclude(rows);
  CHECK(found[0].text == "card: fast (200 tokens/s at 2000 tokens, batch 1)");
  CHECK(nlohmann::json::parse(found[0].places).size() == 1);
}

TEST_CASE("full KV is recommended if it beats everything that meets the floor") {
  const auto found =
      conclude({row(2000, 1, "full", 100, 1), row(2000, 1, "lossy", 500, 0.3), row(2000, 1, "slow", 50, 0.99)});
  CHECK_THAT(found[0].text, Contains("full (100 tokens/s"));
  CHECK_THAT(found[1].text, Contains("full KV is the fastest that meets the floor"));
}

TEST_CASE("a setting without a score is not recommended, and the reason is reported") {
  const auto found = conclude({row(2000, 1, "full", 100, 1), row(2000, 1, "unknown", 500, -1)});
  CHECK_THAT(found[0].text, Contains("full (100"));
  CHECK_THAT(found[0].detail, Contains("not considered, because no score is predicted: unknown (no such heads)"));
  // If no score is requested, there is no floor, and the text states this.
  config::ScoreChoice none;
  none.benchmark = "none";
  const std::vector<Result> rows = {row(2000, 1, "full", 100, -1), row(2000, 1, "unknown", 500, -1)};
  const auto unheld = findings(rows, none);
  CHECK_THAT(unheld[0].text, Contains("unknown (500"));
  CHECK_THAT(unheld[0].detail, Contains("no score was requested"));
}

TEST_CASE("the floor is configurable, and a score that may be below it comes with an alternative") {
  std::vector<Result> rows = {row(2000, 1, "full", 100, 1), row(2000, 1, "risky", 500, 0.96),
                              row(2000, 1, "safe", 300, 0.98)};
  rows[0].benchmark->interval = {1, 1};
  CHECK_THAT(conclude(rows)[0].text, Contains("risky (500"));
  CHECK_THAT(conclude(rows)[0].detail,
             Contains("the fastest whose whole score interval is above the floor is safe (300 tokens/s)"));
  config::ScoreChoice strict = score_choice(config::parse_yaml("score: {benchmark: ruler, floor: 97 %}", "t"));
  CHECK_THAT(findings(rows, strict)[0].text, Contains("safe (300"));
  strict.floor = 0.99;
  CHECK_THAT(findings(rows, strict)[0].text, Contains("full (100"));
  const auto none_meets = findings(std::vector{rows[1], rows[2]}, strict);
  CHECK_THAT(none_meets[0].text, Contains("nothing that fits is predicted to keep 99 % of full KV's ruler score; safe "
                                          "comes nearest with 98.0 %"));
  CHECK(none_meets.size() == 1);  // the other findings are about the recommended setting
}

TEST_CASE("differences within the uncertainty of costs are reported as such") {
  // The costs of both are the same and cancel, except the effect of the second one's own trace.
  std::vector<Result> rows = {row(2000, 1, "first", 110, 1), row(2000, 1, "second", 100, 1)};
  CHECK_THAT(conclude(rows)[0].detail,
             Contains("1.1 times as fast as the next policy, second") && !Contains("within uncertainty"));
  result::Effect trace{result::kTraceSample, {result::kTraceSample}, {}, {}};
  trace.longer.step = 1.3, trace.shorter.step = 0.7;
  rows[1].experiment.effects.push_back(trace);
  CHECK_THAT(conclude(rows)[0].detail, Contains("within uncertainty"));
}

TEST_CASE("groups that must not be compared are separated") {
  std::vector<Result> rows = {row(2000, 1, "full", 50, 1), row(2000, 1, "slow", 40, 1), row(2000, 1, "full", 200, 1),
                              row(2000, 1, "fast", 300, 1)};
  for (int i = 0; i < 4; ++i) rows[static_cast<std::size_t>(i)].subject.model = std::string(1, i < 2 ? 'a' : 'b');
  const auto found = conclude(rows);
  CHECK(found[0].text ==
        "a on card: full (50 tokens/s at 2000 tokens, batch 1)\nb on card: fast (300 tokens/s at 2000 tokens, batch "
        "1)");
  CHECK_THAT(found[1].text, Contains("a on card: full KV is the fastest") &&
                                Contains("\nb on card: fast is faster than full KV from batch 1 "));
}

TEST_CASE("an oracle is never recommended, and a sweep in which nothing fits is reported") {
  std::vector<Result> rows = {row(2000, 1, "full", 100, 1), row(2000, 1, "exact", 500, 1)};
  rows[1].subject.policy_category = "oracle of selection";
  CHECK_THAT(conclude(rows)[0].text, Contains("full (100"));
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
  CHECK(found[0].text ==
        "card, score ruler: full (100 tokens/s at 2000 tokens, batch 1)\n"
        "card, score longbench: fast (300 tokens/s at 2000 tokens, batch 1)\n"
        "card, score none: fast (300 tokens/s at 2000 tokens, batch 1)");
  CHECK_THAT(found[0].detail, Contains("predicted longbench score 97.0 %") && Contains("no score was requested"));
  rows.resize(2);
  rows[1].benchmark.reset();
  rows.erase(rows.begin());
  CHECK_THAT(conclude(rows)[0].text, Contains("nothing that fits is predicted to keep 95 % of full KV's ruler score"));
}

TEST_CASE("settings are described by the keys that apply to them, and lengths read back unchanged") {
  Result full = row(13000, 1, "full", 100, 1);
  full.subject.swept = {{"policy.name", "full"}, {"match.tokens_attended", "1"}};
  CHECK(conclude({full})[0].text == "card: full (100 tokens/s at 13000 tokens, batch 1)");
  Result solved = row(13312, 1, "quest", 100, 1);
  solved.subject.settings = {{"policy.budget", std::int64_t{64}}};
  solved.subject.swept = {{"policy.name", "quest"}, {"match.tokens_attended", "1"}};
  CHECK(conclude({solved})[0].text ==
        "card: quest, budget 64, match.tokens_attended 1 (100 tokens/s at 13K tokens, batch 1)");
}

// Random tables: a recommended row meets the floor, and no row of its machine, model and context that meets the same
// floor is faster.
TEST_CASE("no recommended row is beaten by a row that meets the same floor") {
  std::mt19937_64 random(7);
  const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int table = 0; table < 300; ++table) {
    std::vector<Result> rows;
    for (int i = 0; i < 3 + any(40); ++i) {
      static const char* const policies[] = {"full", "quest", "rocketkv", "exact_topk"};
      const int policy = any(4);
      const double rate = any(6) == 0 ? 0 : 1 + any(1000);
      Result r = row(std::int64_t{1000} << any(3), 1 << any(5), policies[policy], rate,
                     policy == 0   ? 1
                     : any(5) == 0 ? -1
                                   : 0.9 + 0.01 * any(11));
      if (policy == 3) r.subject.policy_category = "oracle";
      r.subject.hardware = any(2) == 0 ? "card" : "other";
      rows.push_back(std::move(r));
    }
    config::ScoreChoice score;
    score.floor = 0.9 + 0.01 * any(11);
    const std::string text = findings(rows, score)[0].text;
    for (const char* card : {"card", "other"}) {
      std::int64_t context = 0;
      for (const Result& r : rows) {
        if (r.subject.hardware == card && r.has_times()) context = std::max(context, r.subject.prompt_tokens);
      }
      double fastest = 0;
      for (const Result& r : rows) {
        const bool there = r.subject.hardware == card && r.subject.prompt_tokens == context && r.has_times();
        const bool meets = r.benchmark && r.benchmark->share_of_full >= score.floor && r.subject.policy != "exact_topk";
        if (there && meets) fastest = std::max(fastest, r.experiment.tokens_per_s);
      }
      const bool present =
          std::any_of(rows.begin(), rows.end(), [&](const Result& r) { return r.subject.hardware == card; });
      if (!present) continue;
      const std::size_t at = text.find(std::string(card) + ": ");
      REQUIRE(at != std::string::npos);
      const std::string line = text.substr(at, text.find('\n', at) - at);
      INFO(text);
      if (fastest == 0) {
        CHECK_THAT(line, Contains("nothing"));
      } else {
        CHECK_THAT(line, Contains(fmt::format("({:.0f} tokens/s at {} tokens", fastest, context)));
      }
    }
  }
}

TEST_CASE("findings describe the first groups of a sweep and state the number of others") {
  std::vector<Result> rows;
  FirstGroups first;
  std::size_t described = 0;
  for (int i = 0; i < 70; ++i) {
    for (const char* policy : {"full", "fast"}) {
      rows.push_back(row(2000, 1, policy, 100 + i, 1));
      rows.back().subject.hardware = fmt::format("card {}", i);
      described += first.has(rows.back()) ? 1 : 0;
    }
  }
  // 64 groups of two results; the other 6 are counted.
  CHECK(described == 128);
  for (const Finding& finding : conclude(rows)) {
    CHECK(std::count(finding.text.begin(), finding.text.end(), '\n') == 64);
    CHECK_THAT(finding.text, Contains("card 63: ") && Contains("\n6 further groups are not described"));
    CHECK(nlohmann::json::parse(finding.places).size() == 64);
  }
  // Failed results are in no group.
  Result failed = rows.front();
  failed.status = Status::kFailed;
  CHECK_FALSE(FirstGroups().has(failed));
}

}  // namespace
}  // namespace kvcast::tests
