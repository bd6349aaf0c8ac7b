// Memory pools: peaks, owners, and requests that do not fit.
#include <catch2/catch.hpp>

#include "engine/pools.hpp"
#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

namespace {

System with_pools(int lanes, double capacity) {
  System system = make_system(lanes, {fair()});
  system.pools = {{"hbm", capacity}, {"dram", 1e12}};
  system.owners = {"weights", "kv", "workspace"};
  return system;
}

LoneOp with_memory(LoneOp op, std::initializer_list<MemoryDelta> deltas) {
  op.memory.assign(deltas.begin(), deltas.end());
  return op;
}

}  // namespace

TEST_CASE("memory is taken at the start and returned at the finish") {
  // 0: takes 100 at 0. 1: takes 50 at 2 and returns 50 at 5. 2: takes 20 at 5, after the 50 were returned. Peak 150
  // at 2.
  const auto run = run_all(with_pools(1, 1000), {with_memory(make_op(0, 2 * kUs), {{0, 0, 100}}),
                                                 with_memory(make_op(0, 3 * kUs), {{0, 2, 50}, {0, 2, -50}}),
                                                 with_memory(make_op(0, 1 * kUs), {{0, 1, 20}, {1, 1, 7}})});
  const PoolPeak& hbm = run.outcome.peaks[0];
  CHECK(hbm.peak_bytes == 150);
  CHECK(hbm.at == 2'000'000);
  REQUIRE(hbm.owners.size() == 2);
  CHECK(hbm.owners[0].owner == 0);
  CHECK(hbm.owners[0].bytes == 100);
  CHECK(hbm.owners[1].owner == 2);
  CHECK(hbm.owners[1].bytes == 50);
  CHECK(run.outcome.peaks[1].peak_bytes == 7);
  CHECK_FALSE(run.outcome.out_of_memory);
}

TEST_CASE("ops that finish at an instant return their memory before others that start at it take theirs") {
  // Op 0 returns its 60 at 3; op 2 takes 60 at 3. The two requests are never held at once, so a pool of 100 is enough.
  const auto run = run_all(with_pools(2, 100), {with_memory(make_op(0, 3 * kUs), {{0, 0, 60}, {0, 0, -60}}),
                                                make_op(1, 3 * kUs), with_memory(make_op(1, 1 * kUs), {{0, 1, 60}})});
  CHECK_FALSE(run.outcome.out_of_memory);
  CHECK(run.outcome.peaks[0].peak_bytes == 60);
}

TEST_CASE("an op that ends at once returns its memory before the next one starts") {
  // At 1 both 1 and 2 may start; 1 has no work, ends at once and returns the 60 that op 0 took. Then 2 takes 60 of 100.
  const auto run = run_all(with_pools(3, 100), {with_memory(make_op(0, 1 * kUs), {{0, 0, 60}}),
                                                with_memory(make_op(1, 0, {}, {0}), {{0, 0, -60}}),
                                                with_memory(make_op(2, 1 * kUs, {}, {0}), {{0, 1, 60}})});
  CHECK_FALSE(run.outcome.out_of_memory);
}

TEST_CASE("the op with the lowest id takes its memory first if several start at one instant") {
  // 60 each of 100: ops 1 to 4 may all start at 1; op 1 gets its memory and op 2 does not.
  std::vector<LoneOp> ops{make_op(0, 1 * kUs)};
  for (int i = 1; i <= 4; ++i) ops.push_back(with_memory(make_op(i, 1 * kUs, {}, {0}), {{0, 0, 60}}));
  const auto run = run_all(with_pools(5, 100), ops);
  REQUIRE(run.outcome.out_of_memory);
  CHECK(run.outcome.out_of_memory->op == 2);
}

TEST_CASE("a request that does not fit ends the run and reports the pool, the time and the owners") {
  LoneOp greedy = with_memory(make_op(1, 1 * kUs, {}, {0}), {{0, 2, 41}});
  greedy.tag = 77;
  const auto run = run_all(with_pools(2, 100),
                           {with_memory(make_op(0, 2 * kUs), {{0, 1, 40}, {0, 0, 20}}), greedy, make_op(0, 100 * kUs)});
  REQUIRE(run.outcome.out_of_memory);
  const OutOfMemory& oom = *run.outcome.out_of_memory;
  CHECK(oom.pool == 0);
  CHECK(oom.owner == 2);
  CHECK(oom.at == 2'000'000);
  CHECK(oom.requested == 41);
  CHECK(oom.in_use == 60);
  CHECK(oom.capacity == 100);
  CHECK(oom.op == 1);
  CHECK(oom.tag == 77);
  REQUIRE(oom.owners.size() == 2);
  CHECK(oom.owners[0].owner == 1);
  CHECK(oom.owners[0].bytes == 40);
  CHECK(oom.owners[1].bytes == 20);
  CHECK(run.outcome.makespan == 2'000'000);
  CHECK(run.outcome.ops == 1);
  CHECK(run.outcome.peaks[0].peak_bytes == 60);
}

TEST_CASE("a request that exactly fits is granted") {
  const auto run = run_all(with_pools(1, 100), {with_memory(make_op(0, 0), {{0, 0, 100}})});
  CHECK_FALSE(run.outcome.out_of_memory);
}

TEST_CASE("the use of a pool is the sum over its owners, and its peak the largest sum") {
  const System system = with_pools(1, 1e6);
  MemoryPools pools(system);
  double held[3] = {}, largest = 0, at_peak[3] = {};
  std::uint64_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto owner = static_cast<std::uint16_t>((state >> 33) % 3);
    const double bytes = static_cast<double>((state >> 40) % 1000);
    if (held[owner] >= bytes && (state >> 62) != 0) {
      pools.give_back(0, owner, bytes);
      held[owner] -= bytes;
    } else {
      REQUIRE(pools.take(0, owner, bytes, i));
      held[owner] += bytes;
    }
    const double sum = held[0] + held[1] + held[2];
    REQUIRE(pools.in_use(0) == sum);
    if (sum > largest) {
      largest = sum;
      std::copy(held, held + 3, at_peak);
    }
  }
  const PoolPeak peak = pools.peaks()[0];
  CHECK(peak.peak_bytes == largest);
  for (const OwnerBytes& owner : peak.owners) CHECK(owner.bytes == at_peak[owner.owner]);
}

}  // namespace kvcast::tests
