// Claims as data: formulas evaluated by hand, rejected files, and a suite's summary of made-up results.
#include "validate/papers.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <random>

#include "made_up.hpp"
#include "result/metric.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "validate/paper_records.hpp"

namespace kvcast::tests {

using namespace validate;
using result::number_named;
using result::Result;

namespace {

double value_of(const std::string& text) {
  return Formula(text, {}).value([](const std::string& name) { return name == "a.b" ? 2.0 : 3.0; });
}

const std::string kFile =
    "paper: Example\n"
    "source: \"Someone, 2025\"\n"
    "defaults: {model: m, workload: {batch: 1, prompt_tokens: 10}, policy: {name: p, budget: 7}}\n"
    "runs:\n"
    "  slow: {policy: full}\n"
    "  fast: {like: slow, policy: {name: q}, workload: {batch: 4}, largest_batch: 9}\n"
    "claims:\n"
    "  - id: EX-1\n"
    "    quantity: speed-up\n"
    "    where: table 1\n"
    "    published: 4\n"
    "    unit: x\n"
    "    context: 10\n"
    "    reading: steps\n"
    "    predict: slow.tpot / fast.tpot\n"
    "    others:\n"
    "      - {reading: all, predict: slow.ttft / fast.ttft}\n"
    "  - {id: EX-2, quantity: memory, where: table 2, unanswered: a setting}\n"
    "  - {id: EX-3, quantity: trend, where: fig 1, predict: slow.hbm / fast.hbm, holds: slow.hbm > fast.hbm}\n"
    "  - {id: EX-4, quantity: cache, where: fig 2, published: 3, held_out: false, depends_on: k, predict: "
    "fast.hbm_of.low_rank_keys}\n";

Paper paper_of(const std::string& text) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/p.yaml";
  std::ofstream(path) << text;
  return read_paper(path);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("formulas are arithmetic over dotted names") {
  CHECK(value_of("a.b + c * 2") == 8);
  CHECK(value_of("(a.b + c) / 2 - 2^3") == -5.5);
  CHECK(value_of("max(a.b, c) + min(a.b, c) + abs(0 - 1)") == 6);
  CHECK(value_of("a.b < c && c < 4") == 1);
  CHECK(Formula("b.x + a + b.x", {}).names() == std::vector<std::string>{"a", "b.x"});
}

TEST_CASE("an invalid formula is rejected at its location") {
  for (const char* bad : {"a +", "(a", "a b", "a $ b", ""}) {
    INFO(bad);
    CHECK(error_of([&] { Formula(bad, {"f.yaml", 3, 4}); }).find("f.yaml:3:4") != std::string::npos);
  }
  CHECK(error_of([] { value_of("1 / (a.b - 2)"); }).find("no finite number") != std::string::npos);
}

TEST_CASE("a paper's runs inherit, and a policy replaces the inherited one") {
  const Paper paper = paper_of(kFile);
  REQUIRE(paper.runs.size() == 2);
  CHECK(paper.runs[0].point.config.canonical() ==
        R"({"model":"m","policy":"full","workload":{"batch":1,"prompt_tokens":10}})");
  CHECK(paper.runs[1].point.config.canonical() ==
        R"({"model":"m","policy":{"name":"q"},"workload":{"batch":4,"prompt_tokens":10}})");
  CHECK(paper.runs[1].point.ask.largest_batch == 9);
  CHECK(paper.runs[0].point.ask.effects == simulate::Effects::kDetailed);
  REQUIRE(paper.claims.size() == 4);
  CHECK(paper.claims[0].readings.size() == 2);
  CHECK(paper.claims[0].base.source == "Someone, 2025, table 1");
  CHECK(paper.claims[1].base.note == "a setting");
}

TEST_CASE("memory is varied if a claim is about fitting") {
  CHECK(!paper_of(kFile).runs[0].point.ask.fit_effects);
  const Paper paper = paper_of(replaced(kFile, "holds: slow.hbm > fast.hbm", "holds: slow.fits > fast.hbm"));
  CHECK(paper.runs[0].point.ask.fit_effects);
  CHECK(!paper.runs[1].point.ask.fit_effects);
}

TEST_CASE("a run may build an index alone") {
  const auto with = [](const std::string& more) {
    const std::string text = replaced(kFile, ", largest_batch: 9", "");
    return replaced(text, "  slow: {policy: full}\n", "  slow: {policy: full, index_heads: 2" + more + "}\n");
  };
  const Paper paper = paper_of(with(""));
  CHECK(paper.runs[0].point.ask.index_heads == 2);
  CHECK(paper.runs[0].point.config.find("index_heads") == nullptr);
  CHECK(error_of([&] { paper_of(with(", largest_batch: 3")); }).find("leave largest_batch out") != std::string::npos);
  CHECK(error_of([&] { paper_of(replaced(with(""), "index_heads: 2", "index_heads: 0")); }).find("index_heads") !=
        std::string::npos);
  Result built;
  built.build.emplace().seconds = 0.25;
  CHECK(number_named(built, "build") == 0.25);
  CHECK(!number_named(built, "tpot"));
}

TEST_CASE("claims that state too little or too much are rejected") {
  const auto refused = [](const std::string& from, const std::string& to) {
    return error_of([&] { paper_of(replaced(kFile, from, to)); });
  };
  CHECK(refused("unanswered: a setting", "note: a setting").find("either predict or unanswered") != std::string::npos);
  CHECK(refused("unanswered: a setting", "unanswered: x, predict: slow.tpot, published: 1").find("either") !=
        std::string::npos);
  CHECK(refused("    published: 4\n", "").find("published (a number) or holds") != std::string::npos);
  CHECK(refused("slow.ttft / fast.ttft", "slow.ttft / quick.ttft").find("known: slow, fast") != std::string::npos);
  CHECK(refused("slow.ttft / fast.ttft", "slow.ttft / fast.ttfft").find("no number of a result") != std::string::npos);
  CHECK(refused("like: slow", "like: slower").find("no run \"slower\"") != std::string::npos);
  CHECK(refused("  slow: {policy: full}\n", "  slow: {policy: full}\n  idle: {policy: full}\n")
            .find("no claim uses idle") != std::string::npos);
  CHECK(refused("depends_on: k, ", "").find("held_out: false needs depends_on") != std::string::npos);
  CHECK(refused("quantity: trend", "quantity: trend, quality: x").find("quality") != std::string::npos);
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/a.yaml") << kFile;
  std::ofstream(folder.path() + "/b.yaml") << kFile;
  CHECK(error_of([&] { read_papers(folder.path()); }).find("EX-1 appears twice") != std::string::npos);
}

TEST_CASE("a mutated paper is either read or rejected") {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    std::string text = kFile;
    for (int edits = 0; edits < 3; ++edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, 1, "{}[]:,#'\"\n -"[random() % 12]);
          break;
        default:
          text[at] = static_cast<char>(32 + random() % 95);
      }
    }
    try {
      paper_of(text);
    } catch (const UserError&) {
    }
  }
}

TEST_CASE("numbers of a result are found by their short names") {
  const Result r = made_up(0.5, 2, 100);
  CHECK(number_named(r, "tpot") == 0.5);
  CHECK(number_named(r, "fits") == 1);
  CHECK(number_named(r, "batch") == 4);
  CHECK(number_named(r, "exposed.gemm") == 0.25);
  CHECK(number_named(r, "exposed.score") == 0);
  CHECK(number_named(r, "prefill.exposed.index") == 0.5);
  CHECK(number_named(r, "prefill.hidden.index") == 0.1);
  CHECK(number_named(r, "hbm_of.low_rank_keys") == 3);
  CHECK(number_named(r, "decode.tpot_s.mean") == 0.5);
  CHECK(!number_named(r, "decode.tpot_s"));
  CHECK(number_named(misfit("prefill"), "fits") == 0);
  CHECK(!number_named(misfit("prefill"), "tpot"));
}

TEST_CASE("claims are judged from the results of their runs") {
  const Paper paper = paper_of(kFile);
  const Suite suite = papers({paper}, [](const std::vector<study::Point>& points) {
    REQUIRE(points.size() == 2);
    return std::vector<Result>{made_up(6, 10, 100), made_up(2, 2, 50)};
  });
  REQUIRE(suite.cases.size() == 4);
  // The prediction is 6 / 2 = 3, the published value 4; the other reading is 10 / 2 = 5.
  CHECK(suite.cases[0].predicted == 3);
  CHECK(suite.cases[0].low == 3);
  CHECK(suite.cases[0].high == 5);
  CHECK(suite.cases[0].verdict == Verdict::kBracketed);
  CHECK(suite.cases[0].origin == Origin::kLiterature);
  CHECK(suite.cases[1].verdict == Verdict::kUnanswered);
  CHECK(suite.cases[2].verdict == Verdict::kAgrees);
  CHECK(suite.cases[2].predicted == 2);
  CHECK(suite.cases[3].verdict == Verdict::kFitted);
  CHECK(suite.cases[3].origin == Origin::kExact);
  // One held-out number is 3 instead of 4; of the held-out claims, one is bracketed and one agrees.
  REQUIRE(suite.budgets.size() == 2);
  CHECK(suite.budgets[0].value.value() == Approx(25));
  CHECK(!suite.budgets[0].passed());
  CHECK(suite.budgets[1].value == 100);
  CHECK(suite.budgets[1].passed());
}

TEST_CASE("a trend that only another reading reproduces is bracketed") {
  const auto verdict = [](const char* other) {
    const std::string trend = "slow.hbm / fast.hbm, holds: slow.hbm > fast.hbm}";
    const Paper paper = paper_of(replaced(
        kFile, trend,
        "slow.hbm / fast.hbm, holds: slow.hbm < fast.hbm, reading: one, others: [" + std::string(other) + "]}"));
    return papers({paper},
                  [](const auto&) {
                    return std::vector<Result>{made_up(6, 10, 100), made_up(2, 2, 50)};
                  })
        .cases[2]
        .verdict;
  };
  CHECK(verdict("{reading: two, predict: slow.tpot / fast.tpot, holds: slow.tpot > fast.tpot}") == Verdict::kBracketed);
  CHECK(verdict("{reading: two, predict: slow.tpot / fast.tpot, holds: slow.tpot < fast.tpot}") == Verdict::kOff);
  CHECK(verdict("{reading: two, predict: slow.tpot / fast.tpot}") == Verdict::kOff);
  CHECK(error_of([] {
          paper_of(replaced(kFile, "predict: slow.ttft / fast.ttft", "predict: slow.ttft, holds: slow.ttft > 1"));
        }).find("published (a number) or holds") != std::string::npos);
}

TEST_CASE("a run on other traces is requested once for each, without effects") {
  const Paper paper =
      paper_of(replaced(replaced(kFile, ", largest_batch: 9", ""), "  slow: {policy: full}\n",
                        "  slow: {policy: full, trace: {recipe: a, steps: 3}, traces: [{recipe: b}]}\n"));
  REQUIRE(paper.runs[0].on_other_traces.size() == 1);
  CHECK(paper.runs[0].point.config.find("traces") == nullptr);
  const config::Node& trace = *paper.runs[0].on_other_traces[0].find("trace");
  CHECK(trace.find("recipe")->text() == "b");
  CHECK(trace.find("steps")->text() == "3");  // all other keys are unchanged
  const Suite suite = papers({paper}, [&](const std::vector<study::Point>& points) {
    // Slow, and fast, which inherits from it, each followed by the same run on the other trace.
    REQUIRE(points.size() == 4);
    CHECK(points[1].config.find("trace")->find("recipe")->text() == "b");
    CHECK(points[1].ask.effects == simulate::Effects::kNone);
    CHECK(points[0].ask.effects == simulate::Effects::kDetailed);
    return std::vector<Result>{made_up(6, 10, 100), made_up(7, 10, 100), made_up(2, 2, 50), made_up(2, 2, 50)};
  });
  CHECK(suite.cases[0].predicted == 3);
  CHECK(suite.cases[0].cost_high == 3.5);
  CHECK(error_of([&] {
          paper_of(replaced(kFile, "  slow: {policy: full}\n", "  slow: {policy: full, traces: needle}\n"));
        }).find("a list of maps") != std::string::npos);
}

TEST_CASE("a case's bounds are its readings widened by cost uncertainty, its verdict that of the readings") {
  const Paper paper = paper_of(replaced(kFile, "published: 4\n", "published: 5.9\n"));
  Result slow = made_up(6, 10, 100);
  slow.experiment.effects = {effect("cores", 6, 9, 3)};
  const Suite suite = papers({paper}, [&](const std::vector<study::Point>&) {
    return std::vector<Result>{slow, made_up(2, 2, 50)};
  });
  // The readings are 3 and 5; the first is between 1.5 and 4.5. 5.9 is beyond both readings and their 15 % tolerance.
  CHECK(suite.cases[0].low == 1.5);
  CHECK(suite.cases[0].high == 5);
  CHECK(suite.cases[0].cost_low == 1.5);
  CHECK(suite.cases[0].cost_high == 4.5);
  CHECK(suite.cases[0].verdict == Verdict::kOff);
}

TEST_CASE("claims about a run that does not fit in memory have no prediction, and the reason is stated") {
  const Paper paper = paper_of(kFile);
  const Suite suite = papers({paper}, [](const std::vector<study::Point>&) {
    return std::vector<Result>{misfit("prefill, layer 3"), made_up(2, 2, 50)};
  });
  CHECK(suite.cases[0].verdict == Verdict::kOff);
  CHECK(!suite.cases[0].predicted);
  CHECK(suite.cases[0].note.find("does not fit in hbm at prefill, layer 3") != std::string::npos);
}

TEST_CASE("the committed claims are well formed and no id appears twice") {
  const std::vector<Paper> all = read_papers(std::string(KVCAST_SOURCE_DIR) + "/configs/validation/papers");
  std::size_t claims = 0;
  for (const Paper& paper : all) claims += paper.claims.size();
  CHECK(all.size() >= 3);
  CHECK(claims >= 100);
}

}  // namespace kvcast::tests
