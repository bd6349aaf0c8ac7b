// Comparisons by hand: small_result() takes 10 ms a step, with factors of 1.1 and 0.9 (the link) and 1.05 and 0.96
// (HBM).
#include "plan/compare.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
const result::Metric& tpot() { return *result::find_metric("tpot"); }
const result::Metric& throughput() { return *result::find_metric("tps"); }

TEST_CASE("costs that affect both equally cancel, others remain") {
  const result::Result a = small_result();
  result::Result b = a;
  b.experiment.tpot_mean_s = 0.015, b.experiment.tokens_per_s = 2 / 0.015;
  for (const result::Metric* metric : {&tpot(), &throughput()}) {
    const Comparison c = compare(a, b, *metric);
    CHECK(c.times == Approx(1.5));
    CHECK(c.interval.low == Approx(1.5));
    CHECK(c.interval.high == Approx(1.5));
    CHECK(c.first_better());
    CHECK(compare(b, a, *metric).times == Approx(1 / 1.5));
  }
  b.experiment.effects.erase(b.experiment.effects.begin() + 1);  // the link affects only the first
  const Comparison c = compare(a, b, tpot());
  CHECK(c.interval.low == Approx(1.5 / 1.1));
  CHECK(c.interval.high == Approx(1.5 / 0.9));
  CHECK(c.beyond_uncertainty());
  b.experiment.tpot_mean_s = 0.0105;
  CHECK_FALSE(compare(a, b, tpot()).beyond_uncertainty());
}

TEST_CASE("the sampling errors of two traces are independent") {
  result::Result a = small_result();
  a.experiment.effects.clear();
  result::Effect trace{result::kTraceSample, {result::kTraceSample}, {}, {}};
  trace.longer.step = 1.2, trace.shorter.step = 0.8;
  a.experiment.effects.push_back(trace);
  const Comparison c = compare(a, a, tpot());
  CHECK(c.times == 1);
  // Logarithms add in quadrature: those of a in one direction, those of b in the other.
  const double up = std::hypot(std::log(1 / 0.8), std::log(1.2)), down = std::hypot(std::log(1.2), std::log(1 / 0.8));
  CHECK(c.interval.high == Approx(std::exp(up)));
  CHECK(c.interval.low == Approx(std::exp(-down)));
}

TEST_CASE("an experiment that does not fit loses, and two that do not fit are not compared") {
  const result::Result fits = small_result();
  result::Result misfit = fits;
  misfit.status = result::Status::kOom;
  CHECK(compare(fits, misfit, tpot()).times == INFINITY);
  CHECK(compare(misfit, fits, tpot()).times == 0);
  CHECK_FALSE(compare(misfit, misfit, tpot()).known());
  // The memory of an experiment that does not fit cannot be compared.
  CHECK(compare(fits, misfit, *result::find_metric("hbm")).times == INFINITY);
}

}  // namespace
}  // namespace kvcast::tests
