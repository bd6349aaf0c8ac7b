#include <catch2/catch.hpp>

#include "policy/growth.hpp"

namespace kvcast::tests {

using kvcast::policy::grown;
using kvcast::policy::Growth;
using kvcast::policy::HeadCounts;

TEST_CASE("counts grow with the context at the policy's rate, rounded and never below zero") {
  HeadCounts seen;
  seen.attended = 100;
  seen.scored = 40;
  seen.fetched = 7;
  const Growth quest{.attended = 0, .scored = 1.0 / 16};

  // 24 tokens later: 24/16 = 1.5 pages more, rounded away from zero to 2; the attended tokens stay at their budget.
  const HeadCounts later = grown(seen, quest, 1000, 1024);
  CHECK(later.attended == 100);
  CHECK(later.scored == 42);
  CHECK(later.fetched == 7);

  // 1000 tokens earlier with everything attended: 100 - 1000 would be negative.
  CHECK(grown(seen, {.attended = 1}, 1000, 0).attended == 0);
  CHECK(grown(seen, {.attended = 1}, 1000, 970).attended == 70);
}

TEST_CASE("a budget that the replayed context does not fill is filled by the tokens generated later") {
  HeadCounts seen;
  seen.attended = 136;
  const Growth rkv{.fill = 1024};
  CHECK(grown(seen, rkv, 136, 1000).attended == 1000);
  CHECK(grown(seen, rkv, 136, 5000).attended == 1024);
  CHECK(grown(seen, rkv, 136, 100).attended == 100);
  seen.attended = 1024;  // from a replay at a longer context: already full, and below it again
  CHECK(grown(seen, rkv, 2000, 5000).attended == 1024);
  CHECK(grown(seen, rkv, 2000, 500).attended == 500);
  // A budget of traffic, half of which is spent on the estimate as soon as a token must be left out.
  seen.attended = 136;
  const Growth hsa{.fill = 1024, .when_full = 512};
  CHECK(grown(seen, hsa, 136, 1024).attended == 1024);
  CHECK(grown(seen, hsa, 136, 1025).attended == 512);
  CHECK(grown(seen, hsa, 2000, 5000).attended == 136);
}

}  // namespace kvcast::tests
