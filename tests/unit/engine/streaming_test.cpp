// Blocks and gates: streaming a graph gives the same run as the whole graph, in memory that does not grow with it.
#include <catch2/catch.hpp>

#include <cmath>

#include "base/random.hpp"
#include "engine/window.hpp"
#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

namespace {

// A random graph in blocks: every op waits for the gate of the block before, directly, through an op of its block or
// through its lane. Copies (lanes 4 and 5) outlive their block.
struct Blocked {
  System system;
  std::vector<LoneOp> ops;
  std::vector<std::size_t> ends;
};

Blocked random_blocks(std::uint64_t seed, int blocks) {
  const Stream stream(seed);
  std::uint64_t i = 0;
  const auto pick = [&](std::uint64_t n) { return stream.below(i++, n); };
  Blocked g;
  g.system = make_system(6, {fair(), fair(), fifo(), fifo()});
  g.system.pools = {{"hbm", 26.0}};
  g.system.owners = {"a", "b"};
  std::vector<OpId> last_on_lane(6, -1);
  OpId gate = -1;
  for (int b = 0; b < blocks; ++b) {
    const std::size_t ops = 1 + pick(12);
    const auto first = static_cast<OpId>(g.ops.size());
    for (std::size_t o = 0; o < ops; ++o) {
      const int lane = static_cast<int>(pick(6));
      LoneOp op = make_op(lane, static_cast<double>(pick(3)) * kUs);
      for (std::uint16_t r = 0; r < 4; ++r) {
        if (pick(3) == 0) op.demands.push_back({r, (lane > 3 ? 5 : 1) * static_cast<double>(1 + pick(4)) * kUs});
      }
      if (pick(2) == 0) {
        const auto owner = static_cast<std::uint16_t>(pick(2));
        const double bytes = static_cast<double>(1 + pick(8));
        op.memory.push_back({0, owner, bytes});
        op.memory.push_back({0, owner, -bytes});
      }
      const auto id = static_cast<OpId>(g.ops.size());
      if (id > first && pick(2) == 0)
        op.after.push_back(first + static_cast<OpId>(pick(static_cast<std::uint64_t>(id - first))));
      if (pick(4) == 0 && id > 0) op.after.push_back(static_cast<OpId>(pick(static_cast<std::uint64_t>(id))));
      if (!waits_for_gate(op.after, last_on_lane[static_cast<std::size_t>(lane)], gate)) {
        op.after.push_back(gate);
      }
      last_on_lane[static_cast<std::size_t>(lane)] = id;
      g.ops.push_back(op);
    }
    gate = static_cast<OpId>(g.ops.size()) - 1;
    g.ends.push_back(g.ops.size());
  }
  return g;
}

// A step like those of decoding, repeated: 5 ops a step, one of them a copy that may lag behind. All steps share five
// works.
class Steps final : public OpSource {
 public:
  explicit Steps(std::int64_t steps) : left_(steps) {}
  bool next_block(OpBlock& out) override {
    out.clear();
    if (left_-- == 0) return false;
    const OpId first = next_;
    if (first == 0) {
      out.demands = {{0, 3 * kUs}, {1, 2 * kUs}, {0, 1 * kUs}};
      out.works = {{1 * kUs}, {2 * kUs, 0, 1}, {1 * kUs, 1, 2}, {0, 2, 3}, {}};
    }
    out.add_op(0, 0);
    if (first > 0) out.add_after(first - 1);
    out.add_op(1, 1);
    out.add_after(first);
    out.add_op(2, 2);
    out.add_after(first);
    out.add_op(1, 3);
    out.add_after(first + 1);
    out.add_op(0, 4);
    out.add_after(first + 3);
    next_ += 5;
    return true;
  }

 private:
  std::int64_t left_;
  OpId next_ = 0;
};

}  // namespace

TEST_CASE("blocks give the same run as all ops at once") {
  int out_of_memory = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const Blocked g = random_blocks(seed, 30);
    const Finished whole = run_all(g.system, g.ops);
    Blocks source(g.ops, g.ends);
    const Finished streamed = run_source(g.system, source);
    REQUIRE(streamed.outcome.makespan == whole.outcome.makespan);
    REQUIRE(streamed.order == whole.order);
    REQUIRE(streamed.outcome.peaks[0].peak_bytes == whole.outcome.peaks[0].peak_bytes);
    REQUIRE(streamed.outcome.peaks[0].at == whole.outcome.peaks[0].at);
    REQUIRE(streamed.outcome.out_of_memory.has_value() == whole.outcome.out_of_memory.has_value());
    if (whole.outcome.out_of_memory) {
      ++out_of_memory;
      REQUIRE(streamed.outcome.out_of_memory->op == whole.outcome.out_of_memory->op);
    }
    REQUIRE(streamed.records.size() == whole.records.size());
    for (std::size_t i = 0; i < whole.records.size(); ++i) {
      REQUIRE(streamed.records[i].start == whole.records[i].start);
      REQUIRE(streamed.records[i].work_start == whole.records[i].work_start);
      REQUIRE(streamed.records[i].finish == whole.records[i].finish);
    }
    CHECK(streamed.outcome.peak_live_ops <= whole.outcome.peak_live_ops);
  }
  // Some of the runs run out of memory, most do not.
  CHECK(out_of_memory > 5);
  CHECK(out_of_memory < 150);
}

TEST_CASE("memory follows the live ops over a million of them") {
  // A step takes 7 (1 + 2 + 3 + 1); its copy ends after 4. So at most the 5 ops of a step are alive.
  constexpr std::int64_t kSteps = 200'000;
  Steps source(kSteps);
  const Outcome outcome = run(make_system(3, {fair(), fair()}), source, nullptr);
  CHECK(outcome.ops == 5 * kSteps);
  CHECK(outcome.makespan == kSteps * 7'000'000);
  CHECK(outcome.peak_live_ops == 5);
}

TEST_CASE("a long op is kept while finished ones are released") {
  // Lane 3 is busy for longer than the whole concurrent run.
  class WithStraggler final : public OpSource {
   public:
    bool next_block(OpBlock& out) override {
      out.clear();
      if (block_ == 10'000) return false;
      if (block_ == 0) {
        out.works = {{1e6 * kUs}, {1 * kUs}};
        out.add_op(1, 0);
      }
      out.add_op(0, 1);
      ++block_;
      return true;
    }
    int block_ = 0;
  } source;
  const Outcome outcome = run(make_system(2, {}), source, nullptr);
  CHECK(outcome.makespan == 1'000'000'000'000);
  CHECK(outcome.peak_live_ops == 2);
}

TEST_CASE("empty blocks are skipped") {
  class Hesitant final : public OpSource {
   public:
    bool next_block(OpBlock& out) override {
      out.clear();
      if (++calls_ > 6) return false;
      if (calls_ == 1) out.works = {{1 * kUs}};  // works may come without ops
      if (calls_ % 3 == 0) out.add_op(0, 0);
      return true;
    }
    int calls_ = 0;
  } source;
  const Outcome outcome = run(make_system(1, {}), source, nullptr);
  CHECK(outcome.ops == 2);
  CHECK(outcome.makespan == 2'000'000);
}

TEST_CASE("an op waits for a gate directly, through its block or through its lane") {
  const auto waits = [](std::vector<OpId> after, OpId lane_before, OpId gate) {
    return waits_for_gate(after, lane_before, gate);
  };
  CHECK(waits({}, -1, -1));     // the first block has no gate before it
  CHECK(waits({3, 9}, -1, 9));  // directly
  CHECK(waits({12}, -1, 9));    // through an op of its own block
  CHECK(waits({}, 9, 9));       // after the gate on its lane
  CHECK(waits({}, 11, 9));      // after an op of its own block
  CHECK_FALSE(waits({}, -1, 9));
  CHECK_FALSE(waits({8, 3}, 7, 9));
}

TEST_CASE("invalid ops break an invariant") {
  const System system = make_system(2, {fair(), {"dead", 0, Sharing::kFair}});
  const LoneOp good = make_op(0, 1 * kUs);
  CHECK_FALSE(breaks_invariant(system, {good, good}, {1}));
  CHECK(breaks_invariant(system, {good, make_op(1, 0)}, {1}));          // does not wait for the gate
  CHECK(breaks_invariant(system, {good, make_op(1, 0, {}, {1})}, {}));  // waits for itself
  CHECK(breaks_invariant(system, {make_op(2, 0)}, {}));                 // no such lane
  CHECK(breaks_invariant(system, {make_op(0, -1)}, {}));                // negative
  CHECK(breaks_invariant(system, {make_op(0, 0, {{2, 1}})}, {}));       // no such resource
  CHECK(breaks_invariant(system, {make_op(0, 0, {{1, 1}})}, {}));       // rate 0
  CHECK(breaks_invariant(system, {make_op(0, 0, {{0, std::nan("")}})}, {}));
  LoneOp returns = good;
  returns.memory.push_back({0, 0, -5});
  System pools = system;
  pools.pools = {{"hbm", 100}};
  pools.owners = {"kv"};
  CHECK(breaks_invariant(pools, {returns}, {}));  // never taken
}

}  // namespace kvcast::tests
