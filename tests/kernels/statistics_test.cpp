// Quantiles, noise, and when sampling stops.
#include <catch2/catch.hpp>

#include <algorithm>

#include "harness/run.hpp"
#include "harness/stats.hpp"
#include "harness/stop.hpp"

namespace kvcast::tests {

using namespace kernels;

TEST_CASE("quantiles interpolate between order statistics") {
  // Sorted 1 2 4 8: rank of q1 is 0.75 -> 1.75; median 1.5 -> 3; q3 2.25 -> 5.
  const Summary s = summarize({8, 1, 4, 2});
  CHECK(s.min == 1);
  CHECK(s.q1 == Approx(1.75));
  CHECK(s.median == Approx(3));
  CHECK(s.q3 == Approx(5));
  CHECK(s.max == 8);
  CHECK(s.mean == Approx(3.75));
  // Squares of deviations: 7.5625 + 3.0625 + 0.0625 + 18.0625 = 28.75; / 3 = 9.5833; root 3.0957; / 3.75 = 0.82552.
  CHECK(s.noise == Approx(0.82552).epsilon(1e-4));
  CHECK(quantile({5}, 0.9) == 5);
}

TEST_CASE("steady samples stop by noise once they are enough and last long enough") {
  Limits limits;
  limits.min_samples = 5;
  limits.min_time = 0.01;
  Sampler sampler(limits);
  for (int i = 0; i < 9; ++i) {
    sampler.add(0.001);
    CHECK_FALSE(sampler.done(0));  // 9 ms at most
  }
  sampler.add(0.0011);
  // 10.1 ms; the standard deviation of nine 1.0 and one 1.1 is 0.0316, over 1.01: 3.1 % of noise.
  CHECK_FALSE(sampler.done(0));
  limits.max_noise = 0.04;
  Sampler loose(limits);
  for (int i = 0; i < 9; ++i) loose.add(0.001);
  loose.add(0.0011);
  CHECK(loose.done(0));
  CHECK(loose.why() == Stop::kNoise);
}

TEST_CASE("a mean over many calls counts with the time of all of them") {
  Limits limits;
  limits.min_samples = 3;
  limits.min_time = 0.03;
  Sampler sampler(limits);
  for (int i = 0; i < 3; ++i) sampler.add(1e-5, 900);  // 27 ms
  CHECK_FALSE(sampler.done(0));
  sampler.add(1e-5, 900);  // 36 ms
  CHECK(sampler.done(0));
  CHECK(sampler.why() == Stop::kNoise);
}

TEST_CASE("noise that no longer changes stops as settled, but not before 64 of its values agree") {
  Limits limits;
  limits.min_samples = 2;
  limits.min_time = 0;
  Sampler sampler(limits);
  int n = 0;
  // Alternating 1 and 2: noise tends to 1/3 and is within 5 % from about the 8th sample on.
  do {
    sampler.add(1.0 + n % 2);
    ++n;
    REQUIRE(n < 200);
  } while (!sampler.done(0));
  CHECK(sampler.why() == Stop::kSettled);
  CHECK(n >= 64);
  CHECK(n < 90);
}

TEST_CASE("the time-out stops samples whose noise neither settles nor falls") {
  Limits limits;
  limits.timeout = 2;
  Sampler sampler(limits);
  sampler.add(1);
  CHECK_FALSE(sampler.done(1.9));
  CHECK(sampler.done(2));
  CHECK(sampler.why() == Stop::kTimeout);
}

TEST_CASE("a budget is shared out evenly and never loosens the limits") {
  Limits limits;
  limits.timeout = 5;
  limits.min_time = 0.2;
  // 10 s for 100 cases: 0.1 s each, one and a half times that as time-out.
  const Limits part = share(limits, 10, 100);
  CHECK(part.timeout == Approx(0.15));
  CHECK(part.min_time == Approx(0.075));
  CHECK(share(limits, 1e6, 1).timeout == 5);
  CHECK(share(limits, 1e6, 1).min_time == 0.2);
  CHECK(share(limits, -1, 3).timeout > 0);
}

TEST_CASE("every prefix of the spread order extends over all cases, and the whole order visits each case once") {
  CHECK(spread_order(8) == std::vector<std::size_t>{0, 4, 2, 6, 1, 5, 3, 7});
  CHECK(spread_order(0).size() <= 1);
  for (std::size_t n = 1; n < 70; ++n) {
    std::vector<std::size_t> order = spread_order(n);
    REQUIRE(order.size() == n);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < n; ++i) REQUIRE(order[i] == i);
  }
}

namespace {
// "a1": benchmark a, case 1.
std::string name_of(const Pending* p) { return p ? p->bench->name + p->axes.front().second : ""; }
struct VisitCases {
  std::vector<Bench> benches;
  std::vector<Pending> cases;
  // a: five cases, two a round; b: one case; d: two cases.
  VisitCases() {
    benches.push_back({"a", "", {numbers("n", {0, 1, 2, 3, 4})}, {}, {Mode::kCold}, nullptr, 2});
    benches.push_back({"b", "", {numbers("n", {0})}, {}, {Mode::kBatch}, nullptr});
    benches.push_back({"d", "", {numbers("n", {0, 1})}, {}, {Mode::kCold}, nullptr});
    for (const Bench& bench : benches) {
      for (const Case& c : product(bench.axes)) cases.push_back({&bench, c, bench.modes.front()});
    }
  }
};
std::string all(Visits visits) {
  std::string out;
  while (const Pending* p = visits.next(false)) out += name_of(p) + " ";
  return out;
}
}  // namespace

TEST_CASE("benchmarks take turns when time is short, some of them several per round") {
  const VisitCases v;
  // Spread, a's order is 0 4 2 1 3: by reversed bits of three.
  CHECK(all(Visits(v.cases, true)) == "a0 a4 b0 d0 a2 a1 d1 a3 ");
  CHECK(all(Visits(v.cases, false)) == "a0 a1 a2 a3 a4 b0 d0 d1 ");
  CHECK(all(Visits({}, true)).empty());
}

TEST_CASE("urgent cases of a benchmark come before its other cases when time is short") {
  VisitCases v;
  v.benches[0].urgent = [](const Case& c) { return c.front().second == "1" || c.front().second == "3"; };
  // Spread order 0 4 2 1 3, with 1 and 3 brought forward.
  CHECK(all(Visits(v.cases, true)) == "a1 a3 b0 d0 a0 a4 d1 a2 ");
  CHECK(all(Visits(v.cases, false)) == "a0 a1 a2 a3 a4 b0 d0 d1 ");
}

TEST_CASE("a skipped case takes no turn, and a benchmark can be removed") {
  const VisitCases v;
  Visits visits(v.cases, true);
  CHECK(name_of(visits.next(false)) == "a0");
  CHECK(name_of(visits.next(true)) == "a4");  // in place of a0
  CHECK(name_of(visits.next(false)) == "a2");
  CHECK(name_of(visits.next(false)) == "b0");
  CHECK(name_of(visits.next(true)) == "d0");  // b has no other
  CHECK(visits.left() == 3);
  std::string taken;
  while (const Pending* p = visits.next_of(&v.benches[0])) taken += name_of(p) + " ";
  CHECK(taken == "a1 a3 ");
  CHECK(name_of(visits.next(false)) == "d1");
  CHECK(visits.next(false) == nullptr);
  CHECK(visits.left() == 0);
}

}  // namespace kvcast::tests
