// Times of runs on fair resources, worked out by hand. Units: microseconds in comments; one unit of a resource takes 1
// ps alone.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

TEST_CASE("an op takes its latency and then the longest of its demands") {
  // 2 + max(5, 3) = 7.
  const auto run = run_all(make_system(1, {fair(), fair()}), {make_op(0, 2 * kUs, {{0, 5 * kUs}, {1, 3 * kUs}})});
  CHECK(run.records[0].start == 0);
  CHECK(run.records[0].work_start == 2'000'000);
  CHECK(run.records[0].finish == 7'000'000);
  CHECK(run.outcome.makespan == 7'000'000);
  CHECK(run.outcome.ops == 1);
  CHECK(run.outcome.events == 2);  // end of the latency, end of the op
}

TEST_CASE("ops on different resources overlap") {
  // max(5, 3) = 5.
  const auto run =
      run_all(make_system(2, {fair(), fair()}), {make_op(0, 0, {{0, 5 * kUs}}), make_op(1, 0, {{1, 3 * kUs}})});
  CHECK(run.records[1].finish == 3'000'000);
  CHECK(run.outcome.makespan == 5'000'000);
}

TEST_CASE("ops share one resource equally") {
  SECTION("two ops, one shorter") {
    // Halves until the shorter (2) is done at 4; the longer (5) has 3 left and runs alone: 7.
    const auto run = run_all(make_system(2, {fair()}), {make_op(0, 0, {{0, 2 * kUs}}), make_op(1, 0, {{0, 5 * kUs}})});
    CHECK(run.records[0].finish == 4'000'000);
    CHECK(run.records[1].finish == 7'000'000);
  }
  SECTION("one joins later") {
    // Alone until 1 (3 of 4 left), halves from 1: the first is done at 7; the second has 4 − 3 = 1 left: 8.
    const auto run =
        run_all(make_system(2, {fair()}), {make_op(0, 0, {{0, 4 * kUs}}), make_op(1, 1 * kUs, {{0, 4 * kUs}})});
    CHECK(run.records[0].finish == 7'000'000);
    CHECK(run.records[1].finish == 8'000'000);
  }
  SECTION("three ops leave one after the other") {
    // Thirds: 1 done at 3. Halves: the 2 has 1 left: done at 5. The 3 has 1 left: done at 6.
    const auto run = run_all(make_system(3, {fair()}), {make_op(0, 0, {{0, 1 * kUs}}), make_op(1, 0, {{0, 2 * kUs}}),
                                                        make_op(2, 0, {{0, 3 * kUs}})});
    CHECK(run.records[0].finish == 3'000'000);
    CHECK(run.records[1].finish == 5'000'000);
    CHECK(run.records[2].finish == 6'000'000);
  }
}

TEST_CASE("an op that cannot use its equal share leaves the rest to the others") {
  // A: 4 on resource 0, but 10 on resource 1, so that alone it takes 10 and uses 0.4 of resource 0. B: 6 on resource 0.
  // Dominant shares grow to v: 0.4 v + v = 1 at v = 1/1.4. Both stop there: B's resource is full, and A uses it. B: 6
  // × 1.4 = 8.4. A then has 10 − 6 = 4 left: 12.4.
  const auto run = run_all(make_system(2, {fair(), fair()}),
                           {make_op(0, 0, {{0, 4 * kUs}, {1, 10 * kUs}}), make_op(1, 0, {{0, 6 * kUs}})});
  CHECK(run.records[1].finish == 8'400'000);
  CHECK(run.records[0].finish == 12'400'000);
}

TEST_CASE("three ops on two resources have equal dominant shares") {
  // A: 10 on r0. B: 10 on r0 and 5 on r1. C: 10 on r1. All take 10 alone. Level v: r0 carries 2v, r1 carries 1.5 v, r0
  // is full at v = 0.5: A and B stop. C continues to grow, with the 1 − 0.25 = 0.75 of r1 that B leaves. C done at
  // 10/0.75
  // = 13.333333; A and B run on at 0.5 each since r0 stays full: 20.
  const auto run = run_all(
      make_system(3, {fair(), fair()}),
      {make_op(0, 0, {{0, 10 * kUs}}), make_op(1, 0, {{0, 10 * kUs}, {1, 5 * kUs}}), make_op(2, 0, {{1, 10 * kUs}})});
  CHECK(run.records[2].finish == 13'333'333);
  CHECK(run.records[0].finish == 20'000'000);
  CHECK(run.records[1].finish == 20'000'000);
}

TEST_CASE("an op limited by its own fifo leaves the fair resource to others") {
  // A holds the fifo for 10 and reads 2 of r0 meanwhile (0.2 of it). B: 10 on r0. 0.2 v + v = 1: v = 1/1.2 for both.
  // Both need 10 at speed 1/1.2: 12.
  const auto run = run_all(make_system(2, {fair(), fifo()}),
                           {make_op(0, 0, {{0, 2 * kUs}, {1, 10 * kUs}}), make_op(1, 0, {{0, 10 * kUs}})});
  CHECK(run.records[0].finish == 12'000'000);
  CHECK(run.records[1].finish == 12'000'000);
}

TEST_CASE("speeds grow in proportion to the weights of the works") {
  const auto with_weight = [](LoneOp op, double weight) {
    op.weight = weight;
    return op;
  };
  SECTION("two ops on one resource") {
    // Speeds v and 3 v fill it at v = 0.25: the second is done at 6 / 0.75 = 8; the first has 6 - 2 = 4 left: 12.
    const auto run = run_all(make_system(2, {fair()}),
                             {make_op(0, 0, {{0, 6 * kUs}}), with_weight(make_op(1, 0, {{0, 6 * kUs}}), 3)});
    CHECK(run.records[1].finish == 8'000'000);
    CHECK(run.records[0].finish == 12'000'000);
  }
  SECTION("up to the speed of an op alone") {
    // Each has a resource of its own and uses 0.6 of a common one. 0.6 v + 0.6 * 3 v = 1 would be v = 0.4167, where the
    // second ran at 1.25: it stops at 1, and the first goes on to 0.4 / 0.6. Done at 10; 10 - 6.667 left: 13.333333.
    const auto run = run_all(
        make_system(2, {fair(), fair(), fair()}),
        {make_op(0, 0, {{0, 6 * kUs}, {1, 10 * kUs}}), with_weight(make_op(1, 0, {{0, 6 * kUs}, {2, 10 * kUs}}), 3)});
    CHECK(run.records[1].finish == 10'000'000);
    CHECK(run.records[0].finish == 13'333'333);
  }
}

TEST_CASE("ops that do not overload a resource run as fast as alone") {
  // Two ops use 0.5 of r0 each, limited by resources of their own: 10 each.
  const auto run = run_all(make_system(2, {fair(), fair(), fair()}), {make_op(0, 0, {{0, 5 * kUs}, {1, 10 * kUs}}),
                                                                      make_op(1, 0, {{0, 5 * kUs}, {2, 10 * kUs}})});
  CHECK(run.records[0].finish == 10'000'000);
  CHECK(run.records[1].finish == 10'000'000);
}

TEST_CASE("rates scale demands") {
  // 3.35e9 bytes at 3.35e12 a second: 1 ms.
  const auto run = run_all(make_system(1, {{"hbm", 3.35e12, Sharing::kFair}}), {make_op(0, 0, {{0, 3.35e9}})});
  CHECK(run.outcome.makespan == 1'000'000'000);
}

TEST_CASE("a demand of 0 has no effect") {
  // Neither waits for the fifo nor slows the other down; even a rate of 0 has no effect.
  System system = make_system(2, {fifo(), {"dead", 0, Sharing::kFair}});
  const auto run = run_all(system, {make_op(0, 0, {{0, 5 * kUs}}), make_op(1, 1 * kUs, {{0, 0}, {1, 0}})});
  CHECK(run.records[1].finish == 1'000'000);
  CHECK(run.outcome.makespan == 5'000'000);
}

TEST_CASE("fractions of a picosecond add up") {
  // 1000 ops of 100 000.4 ps: 100 000 400 ps; whole picoseconds would end at 100 000 000.
  std::vector<LoneOp> latencies, works;
  for (int i = 0; i < 1000; ++i) {
    latencies.push_back(make_op(0, 100'000.4));
    works.push_back(make_op(0, 0, {{0, 100'000.4}}));
  }
  CHECK(run_all(make_system(1, {}), latencies).outcome.makespan == 100'000'400);
  CHECK(run_all(make_system(1, {fair()}), works).outcome.makespan == 100'000'400);
}

TEST_CASE("no time is lost over a million changes of speed") {
  // Three lanes share one resource that is never idle: 300 000 ops of 10 000.1, 10 000.2 and 10 000.3 ps in turn make
  // 300 000 × 10 000.2 ps of work, whatever the split between the lanes.
  std::vector<LoneOp> ops;
  for (int i = 0; i < 300'000; ++i) {
    // The lanes get the same number of ops but not the same work, and so drift apart; the last one ends alone.
    ops.push_back(make_op(i % 3, 0, {{0, 10'000.1 + 0.1 * (i % 3)}}));
  }
  const auto run = run_all(make_system(3, {fair()}), ops);
  CHECK(std::abs(run.outcome.makespan - 3'000'060'000) <= 1);
}

TEST_CASE("picoseconds are exact after hours") {
  // 3 ops of 2000 s and one of 7 ps: 6e15 + 7 ps.
  const double long_time = 2000 * kPicosPerSecond;
  const auto run = run_all(make_system(1, {fair()}), {make_op(0, long_time), make_op(0, 0, {{0, long_time}}),
                                                      make_op(0, long_time), make_op(0, 7)});
  CHECK(run.outcome.makespan == 6'000'000'000'000'007);
  CHECK(run.records[3].finish - run.records[3].start == 7);
}

TEST_CASE("exceeding the range of the clock is a user error") {
  const double long_time = 4e6 * kPicosPerSecond;
  CHECK_THROWS_AS(run_all(make_system(1, {}), {make_op(0, long_time), make_op(0, long_time), make_op(0, long_time)}),
                  UserError);
  CHECK_THROWS_AS(run_all(make_system(1, {fair()}), {make_op(0, 0, {{0, 1e290}})}), UserError);
}

}  // namespace kvcast::tests
