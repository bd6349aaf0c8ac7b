// Works that ops share: their ids, their costs, and input that refers to missing ones.
#include <catch2/catch.hpp>

#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

namespace {

// One op per block; the first block brings the requested number of works.
class OpsOfWorks final : public OpSource {
 public:
  OpsOfWorks(int works, std::vector<WorkId> ops) : works_(works), ops_(std::move(ops)) {}
  bool next_block(OpBlock& out) override {
    out.clear();
    if (next_ == ops_.size()) return false;
    for (; works_ > 0; --works_) out.add_work(1 * kUs);
    out.add_op(0, ops_[next_++]);
    return true;
  }

 private:
  int works_;
  std::vector<WorkId> ops_;
  std::size_t next_ = 0;
};

}  // namespace

TEST_CASE("ops that share a work run like ops with separate, equal works") {
  // One work: latency 1, 2 of the fair resource. Ops 0 and 1 share it from 1 on, each at half speed, until 5. Op 2
  // follows on lane 0 and is alone: 5 + 1 + 2 = 8.
  OpBlock block;
  block.add_work(1 * kUs);
  block.add_demand(0, 2 * kUs);
  for (const std::uint16_t lane : {0, 1, 0}) block.add_op(lane, 0);
  OneBlock source(block);
  const System system = make_system(2, {fair()});
  const Finished shared = run_source(system, source);
  CHECK(shared.records[0].finish == 5'000'000);
  CHECK(shared.records[1].finish == 5'000'000);
  CHECK(shared.records[2].finish == 8'000'000);
  const LoneOp first = make_op(0, 1 * kUs, {{0, 2 * kUs}}), second = make_op(1, 1 * kUs, {{0, 2 * kUs}});
  const Finished own = run_all(system, {first, second, first});
  CHECK(own.order == shared.order);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(own.records[i].start == shared.records[i].start);
    CHECK(own.records[i].work_start == shared.records[i].work_start);
    CHECK(own.records[i].finish == shared.records[i].finish);
  }
}

TEST_CASE("ops that share a work take a fifo in turn") {
  // 3 of the fifo each, all ready at 1: 1 to 4, 4 to 7, 7 to 10.
  OpBlock block;
  block.add_work(1 * kUs);
  block.add_demand(0, 3 * kUs);
  for (const std::uint16_t lane : {0, 1, 2}) block.add_op(lane, 0);
  OneBlock source(block);
  const Finished run = run_source(make_system(3, {fifo()}), source);
  CHECK(run.records[0].finish == 4'000'000);
  CHECK(run.records[1].finish == 7'000'000);
  CHECK(run.records[2].finish == 10'000'000);
}

TEST_CASE("works are numbered across blocks and remain available") {
  // Latencies 1 and 2 come with the first block, 4 with the second; the third block uses them all: 1, 4, 2 + 4 + 1.
  class ThreeBlocks final : public OpSource {
   public:
    bool next_block(OpBlock& out) override {
      out.clear();
      switch (block_++) {
        case 0:
          out.add_work(1 * kUs);
          out.add_work(2 * kUs);
          out.add_op(0, 0);
          return true;
        case 1:
          out.add_work(4 * kUs);
          out.add_op(0, 2);
          return true;
        case 2:
          for (const WorkId work : {1u, 2u, 0u}) out.add_op(0, work);
          return true;
        default:
          return false;
      }
    }
    int block_ = 0;
  } source;
  const Finished run = run_source(make_system(1, {}), source);
  CHECK(run.records[1].start == 1'000'000);
  CHECK(run.records[2].start == 5'000'000);
  CHECK(run.records[3].start == 7'000'000);
  CHECK(run.records[4].start == 11'000'000);
  CHECK(run.outcome.makespan == 12'000'000);
}

TEST_CASE("an op with an unknown work aborts the program") {
  OpsOfWorks known(2, {0, 1, 0}), unknown(2, {0, 2}), none(0, {0});
  CHECK_FALSE(breaks_invariant(make_system(1, {}), known));
  CHECK(breaks_invariant(make_system(1, {}), unknown));
  CHECK(breaks_invariant(make_system(1, {}), none));
}

TEST_CASE("a range beyond its array aborts the program") {
  OpBlock block;
  block.add_work(1 * kUs);
  block.add_op(0, 0);
  const System system = make_system(1, {fair()});
  const auto fails = [&](const OpBlock& changed) {
    OneBlock source(changed);
    return breaks_invariant(system, source);
  };
  CHECK_FALSE(fails(block));
  OpBlock demands = block, after = block, memory = block, reversed = block;
  demands.works[0].demands_end = 1;
  after.ops[0].after_end = 1;
  memory.ops[0].memory_end = 1;
  reversed.ops[0].after_begin = 1;
  CHECK(fails(demands));
  CHECK(fails(after));
  CHECK(fails(memory));
  CHECK(fails(reversed));
}

}  // namespace kvcast::tests
