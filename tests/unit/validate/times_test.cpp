// GPUs derived from others, and the widening of intervals, on numbers worked out by hand.
#include <catch2/catch.hpp>

#include <cmath>

#include "config/find.hpp"
#include "config/left_out.hpp"
#include "validate/times.hpp"
#include "validate/transfer.hpp"

namespace kvcast::tests {

using namespace validate;

namespace {

config::Hardware card(const char* name) { return config::read_hardware(config::find_config("hardware", name, {})); }

// A number of a group whose expected value is `factor` times its prediction; costs explain a tenth.
Case case_of(const char* group, const char* source, double factor, double in_use) {
  Case c;
  c.group = std::string(group), c.source = std::string(source), c.unit = std::string("us");
  c.predicted = 100, c.expected = 100 * factor;
  c.origin = Origin::kFitted;
  set_interval(c, 0.1, in_use);
  return c;
}

// The logarithm of the factor, less a 10 % uncertainty of costs, subtracted as squares.
double left(double factor) { return std::sqrt(std::pow(std::log(factor), 2) - std::pow(std::log(1.1), 2)); }

}  // namespace

TEST_CASE("a GPU is derived from the numbers of its data sheet") {
  const config::Hardware h100 = card("h100-sxm"), h200 = card("h200"), a100 = card("a100-80gb-sxm");
  const config::Hardware as_h200 = derived(h100, h200);
  CHECK(as_h200.gpu.hbm_bandwidth == h200.gpu.hbm_bandwidth);
  CHECK(as_h200.gpu.attention.row.y == h100.gpu.attention.row.y);
  CHECK(as_h200.fit == config::TimesOrigin::kDerived);
  CHECK(config::fit_text(as_h200) == "no fit: derived from h100-sxm");
  const config::Hardware as_a100 = derived(h100, a100);
  CHECK(as_a100.fit == config::TimesOrigin::kNone);
  // The bandwidth scales with 108 SMs at 1410 MHz over 132 at 1755 MHz, and is no less than the memory's.
  const double cores = 108 * 1410.0 / (132 * 1755.0);
  CHECK(as_a100.gpu.attention.l2_bandwidth.value == Approx(std::max(h100.gpu.attention.l2_bandwidth * cores, 2039e9)));
  CHECK(card("h20").fit == config::TimesOrigin::kDerived);
  CHECK(card("b200").fit == config::TimesOrigin::kNone);
  CHECK(card("a100-40gb-pcie4").fit == config::TimesOrigin::kFitted);
}

TEST_CASE("a roofline is bytes over the bandwidth or products over the peak") {
  const config::Gpu gpu = card("a100-80gb-sxm").gpu;
  const graph::Gemm wide{4096, 4096, 4096, 2}, narrow{1, 4096, 4096, 2};
  CHECK(roofline_seconds(wide, gpu) == Approx(2 * 4096.0 * 4096 * 4096 / 312e12));
  CHECK(roofline_seconds(narrow, gpu) == Approx((4096.0 * 4096 + 2 * 4096) * 2 / 2039e9));
}

TEST_CASE("intervals add the omitted effects to the cost uncertainty") {
  Case c;
  c.predicted = 100;
  // Logarithms of 0.3 and 0.4 are independent: 0.5.
  set_interval(c, std::exp(0.3) - 1, 0.4);
  CHECK(*c.high == Approx(100 * std::exp(0.5)));
  set_interval(c, 1 - std::exp(-0.3), 0.4);
  CHECK(*c.low == Approx(100 * std::exp(-0.5)));
  set_interval(c, 2, 0);
  CHECK(*c.low > 0);
}

TEST_CASE("the half-width of a group covers four fifths of its numbers, in addition to their cost uncertainty") {
  Suite suite;
  const double in_use = config::left_out().other_kernels;
  // The numbers are 2 to 11 tenths above their predictions: of n = 10 the ninth counts (0.8 times 11, rounded up),
  // whose error is 1; costs explain 0.1.
  for (int i = 2; i <= 11; ++i) suite.cases.push_back(case_of(kOtherCards, "a, b", 1 + 0.1 * i, in_use));
  suite.cases.push_back(case_of(kOtherCards, "c, d", 1.05, in_use));
  suite.cases.back().held_out = false;  // does not count
  const Widening w = widenings(suite).at(2);
  CHECK(w.key == "other_kernels");
  CHECK(w.n == 10);
  CHECK(w.sources == 1);
  CHECK(w.learnt == Approx(left(2)));
  CHECK(w.coverage_apart == 0);  // no other source to derive a half-width from, and all numbers need one
  CHECK_THAT(intervals_text({w}), Catch::Contains("other_kernels: {value: 0.687, origin: fitted") &&
                                      Catch::Contains("from 1 source need 0.687; no other source to compare with"));
}

TEST_CASE("a single source gets the least half-width, several get what four fifths of their numbers need") {
  Suite suite;
  const double in_use = config::left_out().fused;
  for (int i = 0; i < 4; ++i) suite.cases.push_back(case_of(kFusedRuntimes, "a, 1", 1.02, in_use));
  const Widening alone = widenings(suite).at(3);
  CHECK(alone.key == "fused");
  CHECK(alone.learnt == 0);  // costs explain 0.1
  CHECK(alone.half_width == 0.2);
  CHECK_THAT(intervals_text({alone}), Catch::Contains("fused: {value: 0.200, origin: assumed"));
  // One of six numbers is outside: five are enough, 0.8 times 7 rounded up is the sixth.
  suite.cases.push_back(case_of(kFusedRuntimes, "b, 1", 1.5, in_use));
  suite.cases.push_back(case_of(kFusedRuntimes, "b, 1", 1.02, in_use));
  const Widening w = widenings(suite).at(3);
  CHECK(w.sources == 2);
  CHECK(w.half_width == Approx(left(1.5)));
  CHECK(w.coverage_apart == Approx(5 / 6.0));  // with a's intervals alone, b's large error is outside
  // Three more within their costs' uncertainty: of nine, the eighth counts.
  for (int i = 0; i < 3; ++i) suite.cases.push_back(case_of(kFusedRuntimes, "c, 1", 1.02, in_use));
  CHECK(widenings(suite).at(3).half_width == 0);
}

TEST_CASE("uncertainties that leave residuals too much room are narrowed, to a half at most") {
  const config::OutsideErrors left_out = config::left_out();
  // Twenty numbers of two sources; half of them have costs with this uncertainty as stated, the others are exact.
  const auto suite_of = [&](double error, double stated, double of_others) {
    Suite suite;
    for (int i = 0; i < 20; ++i) {
      const bool wide = i % 2 == 0;
      Case& c = suite.cases.emplace_back(case_of(kEagerFrameworks, i < 10 ? "a, 1" : "b, 1", wide ? 1 + error : 1, 0));
      set_interval(c, (wide ? stated : of_others) * left_out.eager_costs, left_out.eager);
    }
    return suite;
  };
  const Widening narrow = widenings(suite_of(0.1, 0.4, 0.4)).at(4);
  CHECK(narrow.costs_key == "eager_costs");
  CHECK(narrow.costs == 0.5);
  CHECK(narrow.half_width == 0);  // a half of 0.4 explains 0.1
  CHECK_THAT(intervals_text({narrow}), Catch::Contains("eager_costs: {value: 0.5, origin: fitted"));
  // Errors as large as stated need all of it: a half-width in its place would widen the exact ones as well.
  const Widening wide = widenings(suite_of(0.4, 0.4, 0)).at(4);
  CHECK(wide.half_width == Approx(0).margin(0.001));
  CHECK(wide.costs == 1);
}

TEST_CASE("kernels of fits do not count for those of other programs") {
  Suite suite;
  const double in_use = config::left_out().kernels;
  // The four others have an error of a half each, and costs explain 0.1.
  for (int i = 0; i < 9; ++i) suite.cases.push_back(case_of(kFittedCards, "a, b", 1, in_use));
  for (const char* source : {"c", "d", "e", "f"}) suite.cases.push_back(case_of(kOtherKernels, source, 1.5, in_use));
  const std::vector<Widening> all = widenings(suite);
  CHECK(all[0].key == "kernels");
  CHECK(all[0].n == 4);
  CHECK(all[0].half_width == Approx(left(1.5)));
  for (const std::size_t other : {1u, 2u, 3u}) CHECK(all[other].half_width == 0);
}

TEST_CASE("claims of a collection file count by the source that each one names") {
  Suite suite;
  const double in_use = config::left_out().eager;
  for (const char* source : {"others, a issue 1, table", "others, a issue 1, figure", "others, b issue 2", "c, page 1"})
    suite.cases.push_back(case_of(kEagerFrameworks, source, 1.02, in_use));
  CHECK(widenings(suite).at(4).sources == 3);
}

TEST_CASE("the headline counts each time once, and omits those known beforehand") {
  Suite suite;
  const auto add = [&](double factor, bool knowing, bool repeated, Origin origin) {
    Case& c = suite.cases.emplace_back(case_of("x", "a", factor, 0));
    c.chosen_knowing = knowing, c.repeated = repeated, c.origin = origin;
  };
  add(2, false, false, Origin::kFitted);  // 50 % low
  add(4, true, false, Origin::kFitted);   // known
  add(4, false, true, Origin::kFitted);   // the same number as another
  add(4, false, false, Origin::kExact);   // a count
  const Headline blind = headline(suite);
  CHECK(blind.errors.n == 1);
  CHECK(blind.errors.median == Approx(0.5));
  CHECK(blind.intervals.n == 1);
  CHECK(blind.intervals.covered == 0);
}

}  // namespace kvcast::tests
