// Intervals of formulas over made-up results: errors that cancel and errors that add up.
#include "validate/paper_records.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "made_up.hpp"

namespace kvcast::tests {

using namespace validate;
using result::Result;

namespace {

// Run a takes 8 s per step: 8.6 or 7.4 under one source, 8.8 or 7.2 under another. Run b takes 2 s: 2.2 or 1.8 under
// the first alone.
Records two_records() {
  Result a = made_up(8, 5, 100), b = made_up(2, 5, 50);
  a.experiment.effects = {effect("kernels", 8, 8.6, 7.4), effect("cores", 8, 8.8, 7.2)};
  a.experiment.step = gemm_for(6);
  b.experiment.effects = {effect("kernels", 2, 2.2, 1.8)};
  Records records;
  records.add("a", a), records.add("b", b);
  return records;
}

}  // namespace

TEST_CASE("errors of one source are shared by all runs, and sources add in quadrature") {
  const Records records = two_records();
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  // 0.6 and 0.8 s of 8 s add up to 1 s.
  CHECK(interval("a.tpot").low == Approx(7));
  CHECK(interval("a.tpot").high == Approx(9));
  // The ratio is 4. With longer kernels in both runs it is 8.6 / 2.2 = 3.909, with shorter ones 7.4 / 1.8 = 4.111. The
  // cores give 3.6 and 4.4.
  CHECK(interval("a.tpot / b.tpot").low == Approx(4 - std::hypot(4 - 8.6 / 2.2, 0.4)));
  CHECK(interval("a.tpot / b.tpot").high == Approx(4 + std::hypot(7.4 / 1.8 - 4, 0.4)));
  // Terms of both sides cancel.
  CHECK(interval("b.tpot / b.tpot").high == Approx(1));
  CHECK(interval("b.tps").low == Approx(1 / 2.2));  // longer steps, fewer tokens
  // GEMM takes 6 s at nominal costs, and 4.3, 3.7, 4.4 and 3.6 s at shifted costs: less in both directions.
  CHECK(interval("a.exposed.gemm").low == Approx(6 - std::hypot(6 - 3.7, 6 - 3.6)));
  CHECK(interval("a.exposed.gemm").high == 6);
  CHECK(interval("a.hbm / b.hbm").low == 2);
  CHECK(interval("a.hbm / b.hbm").high == 2);
  CHECK(interval("a.fits").high == 1);
  CHECK(!records.interval(Formula("a.build", {})));
}

TEST_CASE("shifted memory changes peaks, or a whole run if its batch changes") {
  Result a = made_up(8, 5, 100), b = made_up(2, 5, 50);
  a.experiment.hbm.owners = {{"activations", 25}};  // ±40 % of 25 bytes is 10
  auto more = std::make_shared<Result>(made_up(3, 5, 70));
  auto none = std::make_shared<Result>(misfit("prefill"));
  more->subject.batch = 6, none->subject.batch = 1;
  b.alternatives = {{"device memory", none, more}};
  Records records;
  records.add("a", a), records.add("b", b);
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  CHECK(interval("a.hbm").low == 90);
  CHECK(interval("a.hbm").high == 110);
  CHECK(interval("a.hbm_of.low_rank_keys").high == 3);  // exact
  CHECK(interval("a.tpot").high == 8);
  // Batch 4, or 6 with more memory; an alternative that does not fit at all was not measured either.
  CHECK(interval("b.batch").low == 4);
  CHECK(interval("b.batch").high == 6);
  CHECK(interval("b.tpot").high == 3);
  CHECK(interval("b.fits").low == 0);
}

TEST_CASE("a difference of peaks shifts with all activations in them, and shifts below a thousandth are ignored") {
  // Weights of 1000, activations of 40 and 20, scores of 400 and 100, all ±40 %: both differences scale equally.
  const auto peaks = [](double estimated) {
    Result r = made_up(1, 1, 1000 + estimated);
    r.experiment.hbm.owners = {{"weights", 1000}, {"activations", estimated}};
    return r;
  };
  Records records;
  records.add("long_eager", peaks(440)), records.add("long", peaks(40));
  records.add("short_eager", peaks(120)), records.add("short", peaks(20));
  records.add("tiny", peaks(0.9));
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  const Interval ratio = interval("(long_eager.hbm - long.hbm) / (short_eager.hbm - short.hbm)");
  CHECK(ratio.low == Approx(4));
  CHECK(ratio.high == Approx(4));
  CHECK(interval("short.hbm").high == Approx(1020 + 8));
  CHECK(interval("tiny.hbm").high == 1000.9);  // 0.36 of 1000.9
}

TEST_CASE("the uncertainty of all memory applies once to whether a run fits") {
  Result fits = made_up(8, 5, 100), too_large = misfit("prefill");
  fits.alternatives = {{"memory", std::make_shared<Result>(misfit("prefill")), nullptr}};
  too_large.alternatives = {{"memory", nullptr, std::make_shared<Result>(made_up(8, 5, 100))}};
  Records records;
  records.add("a", fits), records.add("b", too_large);
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  CHECK(interval("a.fits").low == 0);
  CHECK(interval("a.fits").high == 1);
  CHECK(interval("b.fits").low == 0);
  CHECK(interval("b.fits").high == 1);
  CHECK(interval("a.tpot").low == 8);  // no other number is known for a run that does not fit
}

TEST_CASE("results on other traces widen the interval, each paired with its counterpart") {
  Records records;
  records.add("a", made_up(8, 5, 100), {made_up(10, 5, 100), made_up(7, 5, 100)});
  records.add("b", made_up(2, 5, 50), {made_up(2.5, 5, 50)});
  records.add("c", made_up(2, 5, 50));
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  CHECK(interval("a.tpot").low == 7);
  CHECK(interval("a.tpot").high == 10);
  // 8 / 2, 10 / 2.5, and 7 / 2 since b has no second other trace.
  CHECK(interval("a.tpot / b.tpot").low == 3.5);
  CHECK(interval("a.tpot / b.tpot").high == 4);
  CHECK(interval("a.tpot / c.tpot").high == 5);
  CHECK(interval("c.tpot").high == 2);
}

}  // namespace kvcast::tests
