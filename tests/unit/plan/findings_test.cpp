#include "plan/findings.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "support/small_result.hpp"

using namespace kvcast::plan;
using Catch::Contains;

namespace {
Row row(std::int64_t context, std::int64_t batch, const std::string& policy, double tokens_per_s, double recall) {
  Row r;
  r.hardware = "card";
  r.context = context;
  r.batch = batch;
  r.policy = r.policy_name = policy;
  r.oom = tokens_per_s == 0;
  r.tokens_per_s = tokens_per_s;
  r.recall = recall;
  r.bound = policy + "'s bound";
  return r;
}
}  // namespace

TEST_CASE("a row is read from a result") {
  const kvcast::result::Result r = kvcast::tests::small_result();
  const Row of_small = row_of(r);
  CHECK(of_small.model == "llama-3.1-8b");
  CHECK(of_small.hardware == "h200");
  CHECK(of_small.trace == "recipe needle, seed 1");
  CHECK(of_small.policy == "quest, budget 1024, tau 0.8");
  CHECK(of_small.policy_name == "quest");
  CHECK_FALSE(of_small.oracle);
  CHECK_FALSE(of_small.oom);
  CHECK(of_small.context == 32768);
  CHECK(of_small.decode_tokens == 512);
  CHECK(of_small.batch == 2);
  CHECK(of_small.tokens_per_s == 200);
  // The HBM moves a step by factors of 1.05 and 0.96, the link by 1.1 and 0.9: logarithms add as squares.
  CHECK(of_small.low == Approx(200 * std::exp(-std::hypot(std::log(1.05), std::log(1.1)))));
  CHECK(of_small.high == Approx(200 * std::exp(std::hypot(std::log(0.96), std::log(0.9)))));
  CHECK(of_small.recall == 0.9);
  CHECK_FALSE(of_small.score.has_value());
  CHECK(of_small.bound == "host link");
  REQUIRE(of_small.moved_by.size() == 2);
  CHECK(of_small.moved_by.at("link.h2d_bandwidth").longer == 1.1);
  CHECK(of_small.moved_by.at("gpu.stream_efficiency and 1 of the same source").shorter == 0.96);
  CHECK(of_small.of_trace.longer == 1);

  kvcast::result::Result other = r;
  other.subject.policy_category = "oracle of selection";
  other.accuracy.task.emplace().interval = {0.625, 1};
  other.experiment.effects.push_back({"trace", {"trace"}, {}, {}});
  other.experiment.effects.back().longer.step = 1.5, other.experiment.effects.back().shorter.step = 0.5;
  CHECK(row_of(other).oracle);
  CHECK(row_of(other).score->low == 0.625);
  CHECK(row_of(other).of_trace.shorter == 0.5);
  CHECK(row_of(other).moved_by.size() == 2);
  other.status = kvcast::result::Status::kOom;
  CHECK(row_of(other).oom);
}

TEST_CASE("findings come from results, live or restored, and failed ones are left out") {
  kvcast::result::Result ran = kvcast::tests::small_result(), failed = ran;
  failed.status = kvcast::result::Status::kFailed, failed.subject.batch = 64;
  const auto found = findings(std::vector{ran, failed});
  CHECK(found[0].text == "h200: quest, budget 1024, tau 0.8 (200 tokens/s at 32K tokens, batch 2)");
  CHECK(found[2].text == "h200: host link sets the pace of quest, budget 1024, tau 0.8");
  const auto nothing = findings(std::vector{failed});
  CHECK(nothing[0].text.empty());
}

TEST_CASE("the memory limit is the largest batch that anything fits at the longest context") {
  const std::vector<Row> rows = {row(1000, 8, "full", 900, 1),   row(2000, 1, "full", 100, 1),
                                 row(2000, 4, "full", 0, 1),     row(2000, 1, "fast", 90, 0.9),
                                 row(2000, 4, "fast", 300, 0.9), row(2000, 4, "lossy", 500, 0.5),
                                 row(2000, 8, "fast", 0, 0.9)};
  const auto found = findings(rows);
  REQUIRE(found.size() == 4);
  // At 2000 tokens batch 8 fits nobody, batch 4 fits two; `lossy` keeps 0.5 of `fast`'s 0.9: too little.
  CHECK_THAT(found[0].text, Contains("fast (300 tokens/s at 2000 tokens, batch 4)"));
  CHECK_THAT(found[0].detail, Contains("full KV does not fit"));
  // At batch 1 full KV is faster (100 against 90), at batch 4 it no longer fits.
  CHECK_THAT(found[1].text, Contains("from batch 4 (full KV no longer fits) at 2000"));
  CHECK_THAT(found[2].text, Contains("fast's bound sets the pace of fast"));
}

TEST_CASE("break-even batches are told by batch, and only where full KV stands beside the policy") {
  // Faster from batch 1 at 1000 and 4000 tokens, from 2 at 2000.
  const std::vector<Row> rows = {row(1000, 1, "full", 10, 1), row(1000, 1, "fast", 20, 0.99),
                                 row(2000, 1, "full", 10, 1), row(2000, 1, "fast", 9, 0.99),
                                 row(2000, 2, "full", 10, 1), row(2000, 2, "fast", 11, 0.99),
                                 row(4000, 1, "full", 10, 1), row(4000, 1, "fast", 20, 0.99)};
  CHECK_THAT(findings(rows)[1].text, Contains("fast beats full KV from batch 1 at 1000, 4000; 2 at 2000"));
  CHECK_THAT(findings({row(1000, 1, "fast", 20, 0.99)})[1].text, Contains("fast was not swept beside full KV"));
  CHECK_THAT(findings({row(1000, 1, "full", 20, 1)})[1].text, Contains("full KV is the fastest here"));
  CHECK_THAT(findings({row(1000, 1, "full", 20, 1), row(2000, 1, "fast", 9, 1)})[1].text,
             Contains("was not swept beside"));
}

TEST_CASE("what is not asked alike is told apart: models, traces, tokens generated") {
  // Of a's slow keeps 0.9 of the mass, below 0.95 of full KV's; b's fast is set beside full KV of b.
  std::vector<Row> rows = {row(2000, 1, "full", 50, 1), row(2000, 1, "slow", 100, 0.9), row(2000, 1, "full", 200, 1),
                           row(2000, 1, "fast", 300, 1)};
  for (int i = 0; i < 4; ++i) rows[i].model = i < 2 ? "a" : "b";
  auto found = findings(rows);
  CHECK_THAT(found[0].text, Contains("a on card: full (50"));
  CHECK_THAT(found[0].text, Contains("\nb on card: fast (300"));
  CHECK_THAT(found[0].detail, Contains("full KV 200 tokens/s"));
  CHECK_THAT(found[1].text, Contains("a on card: full KV is the fastest here\nb on card: fast beats full KV from"));
  for (Row& r : rows) r.trace = "recipe " + r.model, r.model = "one";
  CHECK_THAT(findings(rows)[0].text, Contains("card, recipe a: full (50") && Contains("\ncard, recipe b: fast (300"));
  for (Row& r : rows) r.decode_tokens = r.trace == "recipe a" ? 16 : 512, r.trace.clear();
  CHECK_THAT(findings(rows)[0].text, Contains("card, 16 generated: full (50") && Contains("card, 512 generated: fast"));
}

TEST_CASE("what is the same in all places is told once") {
  std::vector<Row> rows = {row(2000, 1, "full", 50, 1), row(2000, 1, "fast", 100, 1), row(2000, 1, "full", 50, 1),
                           row(2000, 1, "fast", 100, 1)};
  rows[2].hardware = rows[3].hardware = "other";
  CHECK(findings(rows)[1].detail == "the smallest swept batch at which it is faster, by context");
  CHECK_THAT(findings({rows[0], rows[1]})[1].detail, Contains("card: the smallest"));
}

TEST_CASE("a task's score is told with its interval") {
  std::vector<Row> rows = {row(2000, 1, "fast", 300, 1)};
  CHECK_THAT(findings(rows)[0].detail, !Contains("task score"));
  rows[0].score = kvcast::Interval{0.625, 1};
  CHECK_THAT(findings(rows)[0].detail, Contains("62 to 100 % of the uncompressed model's task score"));
}

TEST_CASE("an oracle is never recommended") {
  std::vector<Row> rows = {row(2000, 1, "best", 900, 1), row(2000, 1, "real", 100, 0.97)};
  rows[0].oracle = true;
  CHECK_THAT(findings(rows)[0].text, Contains("real"));
}

TEST_CASE("a sweep in which nothing fits says so") {
  const auto found = findings({row(2000, 1, "full", 0, 1)});
  for (const Finding& f : found) CHECK_THAT(f.text, Contains("nothing in this sweep fits"));
  CHECK(findings(std::vector<Row>{}).size() == 4);
}

namespace {
Row moved(Row r, std::map<std::string, Row::Factors> by) {
  r.moved_by = std::move(by);
  return r;
}
}  // namespace

TEST_CASE("a cost that both rest on cancels in how much faster one is; independent factors add as squared logarithms") {
  // 30 of 20 tokens/s are 1.5 times. The memory's rate moves both alike: 1.5 whichever way.
  const Row a = row(2000, 1, "a", 30, 1), b = row(2000, 1, "b", 20, 1);
  const Row::Factors tenth{0.9, 1.1};
  const auto same = times_as_fast(moved(a, {{"hbm", tenth}}), moved(b, {{"hbm", tenth}}));
  CHECK(same.low == Approx(1.5));
  CHECK(same.high == Approx(1.5));
  // Launches move a's step alone, by a factor of 2 either way; the link moves b's alone, by 4: logarithms of ln 2 and
  // 2 ln 2, together sqrt(1 + 4) ln 2.
  const auto apart = times_as_fast(moved(a, {{"launch", {0.5, 2}}}), moved(b, {{"link", {0.25, 4}}}));
  CHECK(apart.low == Approx(1.5 * std::pow(2, -std::sqrt(5))));
  CHECK(apart.high == Approx(1.5 * std::pow(2, std::sqrt(5))));
}

TEST_CASE("a trace moves two policies each for itself") {
  // A factor of 2 for a and of 8 for b: ln 2 and 3 ln 2, together sqrt(10) ln 2.
  Row a = row(2000, 1, "a", 30, 1), b = row(2000, 1, "b", 20, 1);
  a.of_trace = {0.5, 2}, b.of_trace = {0.125, 8};
  CHECK(times_as_fast(a, b).low == Approx(1.5 * std::pow(2, -std::sqrt(10))));
  CHECK(times_as_fast(a, b).high == Approx(1.5 * std::pow(2, std::sqrt(10))));
  CHECK_THAT(findings({a})[3].text, Contains("other layers and steps may move a step of a by -50 % to +100 %"));
}

TEST_CASE("the best policy's lead over the next one is told with what costs leave of it") {
  const std::vector<Row> rows = {
      moved(row(2000, 1, "fast", 30, 1), {{"host.launch", {0.8, 1.25}}, {"hbm", {0.9, 1.1}}}),
      row(2000, 1, "slow", 10, 1), moved(row(2000, 1, "next", 25, 1), {{"hbm", {0.9, 1.1}}})};
  const auto found = findings(rows);
  // 30 / 25 = 1.2; launches leave 1.2 / 1.25 = 0.96 to 1.2 / 0.8 = 1.5 of it.
  CHECK_THAT(found[0].detail, Contains("not told apart from the next: 0.96 to 1.5 times as fast as next"));
  CHECK_THAT(found[3].text, Contains("card: host.launch may move a step of fast by -20 % to +25 %"));
  CHECK_THAT(found[3].detail, Contains("then hbm: -10 % to +10 %"));

  const std::vector<Row> clear = {moved(rows[0], {{"hbm", {0.9, 1.1}}, {"idle", {1, 1.005}}}), rows[1], rows[2]};
  CHECK_THAT(findings(clear)[0].detail, Contains("; 1.19 to 1.2 times as fast as next"));
  CHECK(findings(clear)[3].detail.empty());  // what moves it by half a per cent is not told
  CHECK_THAT(findings({row(2000, 1, "alone", 9, 1)})[3].text, Contains("no cost moves alone by a per cent"));
}
