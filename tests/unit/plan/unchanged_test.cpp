#include "plan/unchanged.hpp"

#include <catch2/catch.hpp>

#include "unit/plan/finding_rows.hpp"

namespace kvcast::tests {
namespace {

result::Result point(const std::string& policy, const std::string& link, const std::string& budget, double tpot) {
  result::Result r;
  r.subject.policy = policy;
  r.subject.swept = {{"policy.budget", budget}, {"hardware.link.h2d_bandwidth", link}};
  r.experiment.tpot_mean_s = tpot;
  return r;
}

TEST_CASE("a swept number of the machine is reported for the policies that it does not affect") {
  std::vector<result::Result> all;
  for (const char* budget : {"256", "512"}) {
    for (const char* link : {"x1", "x2"}) {
      all.push_back(point("quest", link, budget, 0.01));
      all.push_back(point("freekv", link, budget, std::string(link) == "x1" ? 0.02 : 0.015));
      all.push_back(point("arkvale", link, budget, 0.03));
      all.back().experiment.traffic.h2d = 64e3, all.back().experiment.traffic.h2d_pieces = 16;
    }
  }
  const auto found = unchanged_of(all);
  REQUIRE(found.size() == 4);  // two policies at two budgets each
  CHECK(found[0].policy == "arkvale, budget 256");
  CHECK(found[0].key == "hardware.link.h2d_bandwidth");
  CHECK(found[0].experiments == 2);
  CHECK_THAT(found[0].reason, Catch::Contains("16 pieces of 4 kB"));  // 64 kB in 16 pieces
  CHECK(found[2].policy == "quest, budget 256");
  CHECK_THAT(found[2].reason, Catch::Contains("copies nothing between host and GPU"));
}

TEST_CASE("a change of half a per cent counts, one of a twentieth does not") {
  const std::vector<result::Result> all = {point("quest", "x1", "256", 0.01), point("quest", "x2", "256", 0.010005),
                                           point("quest", "x1", "512", 0.02), point("quest", "x2", "512", 0.0201)};
  const auto found = unchanged_of(all);
  REQUIRE(found.size() == 1);  // 0.05 % does not count as a change, 0.5 % does
  CHECK(found[0].policy == "quest, budget 256");
}

TEST_CASE("keys that are not numbers of a machine, and single points, are not reported") {
  result::Result a = point("quest", "x1", "256", 0.01), b = a;
  a.subject.swept = {{"workload.batch", "1"}}, b.subject.swept = {{"workload.batch", "2"}};
  CHECK(unchanged_of(std::vector{a, b}).empty());
  CHECK(unchanged_of(std::vector{point("quest", "x1", "256", 0.01)}).empty());
}

}  // namespace
}  // namespace kvcast::tests
