// GPUs derived from others, and the widening of intervals, on numbers worked out by hand.
#include <catch2/catch.hpp>

#include <cmath>

#include "config/find.hpp"
#include "config/left_out.hpp"
#include "validate/times.hpp"
#include "validate/transfer.hpp"

using namespace kvcast;
using namespace kvcast::validate;

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

}  // namespace

TEST_CASE("a GPU is derived from the numbers of its data sheet") {
  const config::Hardware h100 = card("h100-sxm"), h200 = card("h200"), a100 = card("a100-80gb-sxm");
  const config::Hardware as_h200 = derived(h100, h200);
  CHECK(as_h200.gpu.hbm_bandwidth == h200.gpu.hbm_bandwidth);
  CHECK(as_h200.gpu.attention.row.y == h100.gpu.attention.row.y);
  CHECK(as_h200.fit == config::Fit::kDerived);
  CHECK(config::fit_text(as_h200) == "no fit: derived from h100-sxm");
  const config::Hardware as_a100 = derived(h100, a100);
  CHECK(as_a100.fit == config::Fit::kNone);
  // The bandwidth scales with 108 SMs at 1410 MHz over 132 at 1755 MHz, and is no less than the memory's.
  const double cores = 108 * 1410.0 / (132 * 1755.0);
  CHECK(as_a100.gpu.attention.l2_bandwidth.value == Approx(std::max(h100.gpu.attention.l2_bandwidth * cores, 2039e9)));
  CHECK(card("h20").fit == config::Fit::kDerived);
  CHECK(card("b200").fit == config::Fit::kNone);
  CHECK(card("a100-40gb-pcie4").fit == config::Fit::kFitted);
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
  set_interval(c, 0.3, std::log(1.4));
  CHECK(*c.high == Approx(100 * (1 + 0.5)));  // 0.3 and 0.4
  CHECK(*c.low == Approx(100 * (1 - std::hypot(0.3, 1 - 1 / 1.4))));
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
  CHECK(w.learnt == Approx(std::log1p(std::sqrt(1 - 0.1 * 0.1))));
  CHECK(w.coverage_apart == 0);  // no other source to derive a half-width from, and all numbers need one
  CHECK_THAT(intervals_text({w}), Catch::Contains("other_kernels: {value: 0.691, origin: fitted") &&
                                      Catch::Contains("from 1 source need 0.691; no other source to compare with"));
}

TEST_CASE("steps of one source count together, and well-predicted ones get the minimum half-width") {
  Suite suite;
  const double in_use = config::left_out().fused;
  for (const char* source : {"a, 1", "b, 1"}) {
    for (int i = 0; i < 4; ++i) suite.cases.push_back(case_of(kFusedRuntimes, source, 1.02, in_use));
  }
  const Widening w = widenings(suite).at(3);
  CHECK(w.key == "fused");
  CHECK(w.sources == 2);
  CHECK(w.learnt == 0);  // costs explain 0.1
  CHECK(w.half_width == 0.1);
  CHECK(w.coverage_apart == 1);
  CHECK_THAT(intervals_text({w}), Catch::Contains("fused: {value: 0.100, origin: assumed"));
}

TEST_CASE("GPUs without a fit get at least the half-width of other programs' kernels") {
  Suite suite;
  const double in_use = config::left_out().kernels;
  // Points of the fit itself do not count; the four others have an error of a half each, and costs explain 0.1.
  for (int i = 0; i < 9; ++i) suite.cases.push_back(case_of(kFittedCards, "a, b", 1, in_use));
  for (const char* source : {"c", "d", "e", "f"}) suite.cases.push_back(case_of(kOtherKernels, source, 1.5, in_use));
  const std::vector<Widening> all = widenings(suite);
  CHECK(all[0].key == "kernels");
  CHECK(all[0].n == 4);
  CHECK(all[0].half_width == Approx(std::log1p(std::sqrt(0.25 - 0.01))));
  for (const std::size_t derived : {1u, 2u}) {
    CHECK(all[derived].learnt == 0);
    CHECK(all[derived].half_width == all[0].half_width);
  }
  CHECK(all[3].half_width < all[0].half_width);  // engines have a half-width of their own
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
