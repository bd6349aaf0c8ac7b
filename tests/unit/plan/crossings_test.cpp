// Crossings of ratios that are known by formula.
#include "plan/crossings.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;

// Samples of a ratio given by formula, without results. Cost uncertainty leaves it open within the factor `open`.
struct Formula {
  std::function<double(double)> times;
  double open = 1;
  int calls = 0;

  std::vector<VariantPair> operator()(const std::vector<double>& xs) {
    std::vector<VariantPair> samples;
    for (const double x : xs) {
      ++calls;
      VariantPair& s = samples.emplace_back();
      s.x = x;
      s.comparison.times = times(x);
      s.comparison.interval = {s.comparison.times / open, s.comparison.times * open};
      s.state = s.comparison.first_better() ? 1 : -1;
      s.settled = s.comparison.beyond_uncertainty();
    }
    return samples;
  }
};

std::vector<Crossing> crossings_of(Formula& formula, KeyRange range) {
  Crossings search(range, [&](const std::vector<double>& xs, const Crossings::Bracket&) { return formula(xs); });
  return search.find();
}

TEST_CASE("a proportional ratio crosses 1 at the value of the formula, in few evaluations") {
  Formula linear{[](double x) { return x / 37.5; }};
  const auto found = crossings_of(linear, {1, 256, false});
  REQUIRE(found.size() == 1);
  CHECK(found[0].value == Approx(37.5).epsilon(1e-3));
  CHECK(found[0].below.state == -1);
  CHECK(found[0].above.state == 1);
  CHECK(linear.calls <= 10);  // two variants each: 20 experiments
}

TEST_CASE("the first integer at which neither variant fits is found") {
  // The first variant is better up to 100; from 101 on neither fits.
  Formula better{[](double) { return 2; }};
  Crossings search({1, 256, true}, [&](const std::vector<double>& xs, const Crossings::Bracket&) {
    std::vector<VariantPair> samples = better(xs);
    for (VariantPair& s : samples) {
      if (s.x > 100) s.state = 0, s.comparison.times = NAN;
    }
    return samples;
  });
  CHECK(search.find().empty());
  REQUIRE(search.samples().count(100) == 1);
  REQUIRE(search.samples().count(101) == 1);
  for (const auto& [x, s] : search.samples()) CHECK(s.state == (x <= 100 ? 1 : 0));
}

TEST_CASE("the ends of an interval without ratios do not depend on the range that is searched") {
  // Targets are certainly met up to 6.3, certainly missed from 13.2 on, and nominally missed from 9.5 on.
  const auto search = [](double from, double to, bool integer) {
    Crossings crossings({from, to, integer}, [&](const std::vector<double>& xs, const Crossings::Bracket&) {
      std::vector<VariantPair> samples;
      for (const double x : xs) {
        VariantPair& s = samples.emplace_back();
        s.x = x, s.state = x < 9.5 ? 1 : -1, s.settled = x <= 6.3 || x >= 13.2;
        s.comparison.times = s.state > 0 ? INFINITY : 0;
      }
      return samples;
    });
    const auto found = crossings.find();
    REQUIRE(found.size() == 1);
    return found[0];
  };
  for (const auto& [from, to] : {std::pair{1, 64}, {1, 32}, {4, 16}, {5, 20}}) {
    INFO(from << " to " << to);
    const Crossing whole = search(from, to, true);
    CHECK(whole.value == 10);
    CHECK(whole.interval.low == 7);  // the first value at which the targets may be missed
    CHECK(whole.interval.high == 14);
    const Crossing real = search(from, to, false);
    CHECK(real.interval.low == Approx(6.3).epsilon(0.02));
    CHECK(real.interval.high == Approx(13.2).epsilon(0.02));
  }
}

TEST_CASE("an integer crossing is the first value at which the other variant is better") {
  for (const double at : {1.5, 2.5, 37.5, 200.5, 255.5}) {
    Formula step{[at](double x) { return x / at; }};
    const auto found = crossings_of(step, {1, 256, true});
    REQUIRE(found.size() == 1);
    CHECK(found[0].value == std::ceil(at));
    CHECK(step.calls <= 12);
  }
  // A tie at 8 is not better: from 9 on.
  Formula tie{[](double x) { return x / 8; }};
  CHECK(crossings_of(tie, {1, 64, true})[0].value == 9);
}

TEST_CASE("several crossings are found, also between grid values, and their absence is reported") {
  // Better only between 4 and 64: log-parabola with roots 4 and 64 in log x.
  Formula hill{[](double x) { return std::exp(-(std::log(x) - std::log(4)) * (std::log(x) - std::log(64))); }};
  const auto found = crossings_of(hill, {1, 256, false});
  REQUIRE(found.size() == 2);
  CHECK(found[0].value == Approx(4).epsilon(2e-3));
  CHECK(found[1].value == Approx(64).epsilon(2e-3));
  // Roots at 20 and 40, between the grid's 16 and 64: the parabola through the grid shows the dip.
  Formula dip{[](double x) { return std::exp((std::log(x) - std::log(20)) * (std::log(x) - std::log(40))); }};
  const auto both = crossings_of(dip, {1, 256, false});
  REQUIRE(both.size() == 2);
  CHECK(both[0].value == Approx(20).epsilon(2e-3));
  CHECK(both[1].value == Approx(40).epsilon(2e-3));
  Formula never{[](double) { return 1.1; }};
  CHECK(crossings_of(never, {1, 256, false}).empty());
}

TEST_CASE("the interval of a crossing is where the ratio's interval contains 1") {
  // x / 32 within a factor of 2: open from 16 to 64.
  Formula linear{[](double x) { return x / 32; }, 2};
  const auto found = crossings_of(linear, {1, 1024, false});
  REQUIRE(found.size() == 1);
  CHECK(found[0].interval.low == Approx(16).epsilon(0.01));
  CHECK(found[0].interval.high == Approx(64).epsilon(0.01));
  // Within a factor of 1000 the better variant is open in the whole range.
  Formula open{[](double x) { return x / 32; }, 1000};
  const auto wide = crossings_of(open, {1, 1024, false});
  CHECK(wide[0].interval.low == 1);
  CHECK(wide[0].interval.high == 1024);
}

TEST_CASE("the memory of a variant that stops fitting is extrapolated") {
  // 10 bytes and 1 a unit of x, of 1000: fits up to 990.
  int calls = 0;
  const auto evaluate = [&](const std::vector<double>& xs, const Crossings::Bracket&) {
    std::vector<VariantPair> samples;
    for (const double x : xs) {
      ++calls;
      auto fits = std::make_shared<result::Result>(small_result()), other = std::make_shared<result::Result>(*fits);
      fits->experiment.hbm = {1e9, 1, {}}, fits->experiment.dram = {1e9, 1, {}};
      other->experiment.hbm = {1000, 10 + x, {}}, other->experiment.dram = {};
      if (10 + x > 1000) other->status = result::Status::kOom;
      VariantPair& s = samples.emplace_back();
      s.x = x, s.of = fits, s.against = other;
      s.comparison.times = other->status == result::Status::kOom ? INFINITY : 0.5;
      s.comparison.interval = {s.comparison.times, s.comparison.times};
      s.state = s.comparison.first_better() ? 1 : -1, s.settled = true;
    }
    return samples;
  };
  Crossings search({1, 65536, true}, evaluate);
  const auto found = search.find();
  REQUIRE(found.size() == 1);
  CHECK(found[0].value == 991);
  CHECK(calls <= 10);  // bisecting the bracket alone would take 12
}

}  // namespace
}  // namespace kvcast::tests
