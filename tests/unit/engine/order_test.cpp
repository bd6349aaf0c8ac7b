// Order of execution: lanes, dependencies, fifos, instants.
#include <catch2/catch.hpp>

#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

TEST_CASE("a lane runs its ops in order of arrival") {
  // Only the lane prevents the second from starting at once: 3 + 2 = 5.
  const auto run = run_all(make_system(1, {}), {make_op(0, 3 * kUs), make_op(0, 2 * kUs)});
  CHECK(run.records[1].start == 3'000'000);
  CHECK(run.outcome.makespan == 5'000'000);
}

TEST_CASE("a waiting op blocks its lane") {
  // 0 on lane 0 ends at 5; 1 on lane 1 waits for it; 2 on lane 1 depends on nothing but follows 1: starts at 6.
  const auto run =
      run_all(make_system(2, {}), {make_op(0, 5 * kUs), make_op(1, 1 * kUs, {}, {0}), make_op(1, 1 * kUs)});
  CHECK(run.records[1].start == 5'000'000);
  CHECK(run.records[2].start == 6'000'000);
}

TEST_CASE("an op starts after the last of its predecessors, even if one is listed twice") {
  const auto run = run_all(make_system(4, {}), {make_op(0, 1 * kUs), make_op(1, 4 * kUs), make_op(2, 2 * kUs),
                                                make_op(3, 1 * kUs, {}, {0, 1, 2, 1})});
  CHECK(run.records[3].start == 4'000'000);
}

TEST_CASE("a cascade of ops without latency or demand happens at one instant") {
  std::vector<LoneOp> ops{make_op(0, 5 * kUs)};
  for (int i = 1; i < 100; ++i) ops.push_back(make_op(i % 7, 0, {}, {i - 1}));
  const auto run = run_all(make_system(7, {}), ops);
  for (const Record& r : run.records) CHECK(r.finish == 5'000'000);
  CHECK(run.outcome.makespan == 5'000'000);
  CHECK(run.outcome.events == 101);  // one end of a latency, 100 ends of ops
}

TEST_CASE("a run without ops takes no time") {
  const auto run = run_all(make_system(1, {fair()}), {});
  CHECK(run.outcome.makespan == 0);
  CHECK(run.outcome.ops == 0);
}

TEST_CASE("a fifo serves in the order in which ops become ready") {
  // Ready at 3, 1, 2; the first to come is 1 (1 to 5), then 2 (5 to 9), then 0 (9 to 13).
  const auto run = run_all(
      make_system(3, {fifo()}),
      {make_op(0, 3 * kUs, {{0, 4 * kUs}}), make_op(1, 1 * kUs, {{0, 4 * kUs}}), make_op(2, 2 * kUs, {{0, 4 * kUs}})});
  CHECK(run.records[1].finish == 5'000'000);
  CHECK(run.records[2].work_start == 5'000'000);
  CHECK(run.records[2].finish == 9'000'000);
  CHECK(run.records[0].start == 0);
  CHECK(run.records[0].work_start == 9'000'000);
  CHECK(run.records[0].finish == 13'000'000);
}

TEST_CASE("ties for a fifo go to the lower id, or to the lower rank if ranks are given") {
  std::vector<LoneOp> ops{make_op(0, 1 * kUs, {{0, 2 * kUs}}), make_op(1, 1 * kUs, {{0, 2 * kUs}})};
  CHECK(run_all(make_system(2, {fifo()}), ops).order == std::vector<OpId>{0, 1});
  ops[0].rank = 9;
  ops[1].rank = 4;
  CHECK(run_all(make_system(2, {fifo()}), ops).order == std::vector<OpId>{1, 0});
}

TEST_CASE("times within a picosecond are equal") {
  // Op 0 is ready 0.8 ps after op 1: the same instant, the lower id first. 1.5 ps after it: a later instant.
  const auto at_once = run_all(make_system(2, {fifo()}),
                               {make_op(0, 1 * kUs + 0.8, {{0, 2 * kUs}}), make_op(1, 1 * kUs, {{0, 2 * kUs}})});
  CHECK(at_once.order == std::vector<OpId>{0, 1});
  const auto later = run_all(make_system(2, {fifo()}),
                             {make_op(0, 1 * kUs + 1.5, {{0, 2 * kUs}}), make_op(1, 1 * kUs, {{0, 2 * kUs}})});
  CHECK(later.order == std::vector<OpId>{1, 0});
}

TEST_CASE("an instant affects the order of ops but not their times") {
  // Op 1 ends 0.9 ps after op 0 is ready, in the same instant, which is therefore settled only then; op 0 still works
  // from the moment at which it was ready: 1 us to 3 us, and not a picosecond later.
  const auto run = run_all(make_system(2, {fifo()}), {make_op(0, 1 * kUs, {{0, 2 * kUs}}), make_op(1, 1 * kUs + 0.9)});
  CHECK(run.records[0].work_start == 1'000'000);
  CHECK(run.records[0].finish == 3'000'000);
}

TEST_CASE("an instant is settled before fifos are granted") {
  // At 1, op 1 becomes ready for the fifo. At 1, too, op 2 ends and sets off a cascade at whose end the op with the
  // lower id becomes ready: op 0 needs the fifo and waits for 2 through 3. Op 0 goes first. (Ids must count up along
  // dependencies, so rank replaces the id.)
  std::vector<LoneOp> ops{make_op(0, 1 * kUs, {{0, 5 * kUs}}), make_op(1, 1 * kUs), make_op(2, 0, {}, {1}),
                          make_op(3, 0, {{0, 5 * kUs}}, {2})};
  ops[0].rank = 7;
  ops[3].rank = 3;
  const auto run = run_all(make_system(4, {fifo()}), ops);
  CHECK(run.records[3].finish == 6'000'000);
  CHECK(run.records[0].finish == 11'000'000);
}

TEST_CASE("work shorter than a picosecond belongs to its instant") {
  // The previous case with 0.4 ps of work instead of no demand: times are still equal, op 3 still goes first.
  std::vector<LoneOp> ops{make_op(0, 1 * kUs, {{0, 5 * kUs}}), make_op(1, 1 * kUs), make_op(2, 0, {{1, 0.4}}, {1}),
                          make_op(3, 0, {{0, 5 * kUs}}, {2})};
  ops[0].rank = 7;
  ops[3].rank = 3;
  const auto run = run_all(make_system(4, {fifo(), fair()}), ops);
  CHECK(run.order == std::vector<OpId>{1, 2, 3, 0});
}

TEST_CASE("several fifos are taken together, and an op holds none of them while it waits") {
  // 0 holds f0 until 4. 1 needs f0 and f1 and waits from 1. 2 needs f1 alone, is ready at 2, overtakes: 2 to 5.
  // At 4 f0 is free but f1 is not; at 5 op 1 takes both: 5 to 8. 3 needs f0, ready at 3: f0 is free at 4 and 1 does not
  // hold it: 4 to 10. So 1 has to wait for f0 again: 10 to 13.
  const auto run = run_all(make_system(4, {fifo(), fifo()}),
                           {make_op(0, 0, {{0, 4 * kUs}}), make_op(1, 1 * kUs, {{0, 3 * kUs}, {1, 2 * kUs}}),
                            make_op(2, 2 * kUs, {{1, 3 * kUs}}), make_op(3, 3 * kUs, {{0, 6 * kUs}})});
  CHECK(run.records[2].work_start == 2'000'000);
  CHECK(run.records[3].work_start == 4'000'000);
  CHECK(run.records[1].work_start == 10'000'000);
  CHECK(run.records[1].finish == 13'000'000);
}

TEST_CASE("an op keeps all its fifos until the longest demand is served") {
  // 0 needs 5 of f0 and 1 of f1: holds both until 5. 1 wants f1: 5 to 6.
  const auto run = run_all(make_system(2, {fifo(), fifo()}),
                           {make_op(0, 0, {{0, 5 * kUs}, {1, 1 * kUs}}), make_op(1, 0, {{1, 1 * kUs}})});
  CHECK(run.records[1].work_start == 5'000'000);
}

TEST_CASE("ops that become ready together start in ready order as their fifos are free") {
  // All ready at 0, in the order of their ranks: 3 (f1), 0 (f0 and f1), 1 (f1), 2 (f0). 3 takes f1 until 4, 0 and 1
  // cannot go, 2 takes f0 until 2. At 4 op 0 takes both, until 6. Then 1.
  std::vector<LoneOp> ops{make_op(0, 0, {{0, 2 * kUs}, {1, 2 * kUs}}), make_op(1, 0, {{1, 1 * kUs}}),
                          make_op(2, 0, {{0, 2 * kUs}}), make_op(3, 0, {{1, 4 * kUs}})};
  ops[0].rank = 1, ops[1].rank = 2, ops[2].rank = 3, ops[3].rank = 0;
  const auto run = run_all(make_system(4, {fifo(), fifo()}), ops);
  CHECK(run.records[3].finish == 4'000'000);
  CHECK(run.records[2].finish == 2'000'000);
  CHECK(run.records[0].work_start == 4'000'000);
  CHECK(run.records[1].work_start == 6'000'000);
}

TEST_CASE("simultaneous finishes free their lanes together") {
  // Four ops end at 3 by different ways; a join starts at 3, and all are reported in order of id.
  const auto run = run_all(make_system(5, {fair(), fifo()}),
                           {make_op(0, 3 * kUs), make_op(1, 1 * kUs, {{0, 2 * kUs}}), make_op(2, 0, {{1, 3 * kUs}}),
                            make_op(3, 2.5 * kUs), make_op(3, 0.5 * kUs), make_op(4, 0, {}, {0, 1, 2, 4})});
  CHECK(run.records[5].start == 3'000'000);
  CHECK(run.order == std::vector<OpId>{3, 0, 1, 2, 4, 5});
}

}  // namespace kvcast::tests
