// The queues of the fifo arbiter against one plain list of all waiting ops, and the order of very long queues.
#include "engine/fifo.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

namespace {

// All waiting ops in ready order, in a single pass: an op that finds all its fifos free takes them.
class PlainArbiter {
 public:
  explicit PlainArbiter(std::size_t resources) : taken_(resources, false), free_since_(resources, 0.0) {}

  void enqueue(const FifoArbiter::Ready& ready, const std::vector<std::uint16_t>& needs) {
    waiting_.push_back({ready, needs});
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const Op& a, const Op& b) {
      return std::pair(a.ready.instant, a.ready.rank) < std::pair(b.ready.instant, b.ready.rank);
    });
  }
  std::vector<FifoArbiter::Grant> hand_out() {
    std::vector<FifoArbiter::Grant> grants;
    std::vector<Op> still_waiting;
    for (const Op& op : waiting_) {
      if (std::any_of(op.needs.begin(), op.needs.end(), [&](std::uint16_t r) { return taken_[r]; })) {
        still_waiting.push_back(op);
        continue;
      }
      double since = op.ready.time;
      for (const std::uint16_t r : op.needs) {
        taken_[r] = true;
        since = std::max(since, free_since_[r]);
      }
      grants.push_back({op.ready.lane, since});
    }
    waiting_ = still_waiting;
    return grants;
  }
  void release(const std::vector<std::uint16_t>& held, double now) {
    for (const std::uint16_t r : held) {
      taken_[r] = false;
      free_since_[r] = now;
    }
  }
  void shift(double back) {
    for (Op& op : waiting_) op.ready.time -= back;
    for (double& time : free_since_) time -= back;
  }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Op {
    FifoArbiter::Ready ready;
    std::vector<std::uint16_t> needs;
  };
  std::vector<Op> waiting_;
  std::vector<bool> taken_;
  std::vector<double> free_since_;
};

// Random instants: some ops release their fifos, others become ready, then both methods grant the fifos.
class Comparison {
 public:
  Comparison(std::uint64_t seed, std::size_t lanes, std::size_t resources)
      : stream_(seed),
        needs_(lanes),
        state_(lanes, State::kIdle),
        fifos_(resources),
        fast_(lanes, resources),
        plain_(resources) {}

  void instant(std::int64_t number) {
    now_ += 10;
    if (pick(40) == 0) shift();
    for (std::size_t lane = 0; lane < state_.size(); ++lane) {
      if (state_[lane] == State::kHolds && pick(3) == 0) finish(lane);
    }
    for (std::size_t lane = 0; lane < state_.size(); ++lane) {
      if (state_[lane] == State::kIdle && pick(4) == 0) become_ready(lane, number);
    }
    hand_out();
  }
  std::size_t granted() const { return granted_; }
  std::size_t longest_queue() const { return longest_queue_; }

 private:
  enum class State { kIdle, kWaits, kHolds };

  std::uint64_t pick(std::uint64_t n) { return stream_.below(draws_++, n); }

  void shift() {
    fast_.shift(8);
    plain_.shift(8);
    now_ -= 8;
  }
  void finish(std::size_t lane) {
    fast_.release(needs_[lane], now_);
    plain_.release(needs_[lane], now_);
    state_[lane] = State::kIdle;
  }
  void become_ready(std::size_t lane, std::int64_t number) {
    needs_[lane].clear();
    for (std::uint16_t r = 0; r < fifos_; ++r) {
      if (pick(fifos_) == 0) needs_[lane].push_back(r);
    }
    if (needs_[lane].empty()) needs_[lane].push_back(static_cast<std::uint16_t>(pick(fifos_)));
    // Few ranks, so that some are equal.
    const FifoArbiter::Ready ready{static_cast<std::uint16_t>(lane), now_, number, static_cast<OpId>(pick(5))};
    fast_.enqueue(ready, needs_[lane]);
    plain_.enqueue(ready, needs_[lane]);
    state_[lane] = State::kWaits;
  }
  void hand_out() {
    const std::vector<FifoArbiter::Grant> expected = plain_.hand_out();
    longest_queue_ = std::max(longest_queue_, plain_.waiting());
    std::vector<FifoArbiter::Grant> actual;
    if (fast_.due()) fast_.hand_out(actual);
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      REQUIRE(actual[i].lane == expected[i].lane);
      REQUIRE(actual[i].since == expected[i].since);
      state_[actual[i].lane] = State::kHolds;
    }
    granted_ += actual.size();
    REQUIRE_FALSE(fast_.due());
  }

  Stream stream_;
  std::uint64_t draws_ = 0;
  double now_ = 0;
  std::vector<std::vector<std::uint16_t>> needs_;
  std::vector<State> state_;
  std::size_t fifos_;
  FifoArbiter fast_;
  PlainArbiter plain_;
  std::size_t granted_ = 0, longest_queue_ = 0;
};

}  // namespace

TEST_CASE("queues grant the same ops in the same order as a pass over all waiting ops") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    Comparison comparison(seed, 3 + seed, 1 + seed % 7);
    for (std::int64_t number = 0; number < 200; ++number) comparison.instant(number);
    CHECK(comparison.granted() > 50);
    if (seed > 20) CHECK(comparison.longest_queue() > 5);
  }
}

TEST_CASE("thousands of lanes take one fifo in ready order") {
  // Lane i is ready at 1 us + i mod 100 us, so that 100 groups of 50 lanes become ready together; the fifo takes 10 us
  // an op and is never idle from 1 us on. In order: by group, within a group by id.
  constexpr int kLanes = 5000, kGroups = 100;
  std::vector<LoneOp> ops;
  for (int i = 0; i < kLanes; ++i) ops.push_back(make_op(i, (1 + i % kGroups) * kUs, {{0, 10 * kUs}}));
  const Finished run = run_all(make_system(kLanes, {fifo()}), ops);
  std::vector<OpId> expected;
  for (int group = 0; group < kGroups; ++group) {
    for (int i = group; i < kLanes; i += kGroups) expected.push_back(i);
  }
  CHECK(run.order == expected);
  for (std::size_t place = 0; place < expected.size(); ++place) {
    const Record& record = run.records[static_cast<std::size_t>(expected[place])];
    REQUIRE(record.work_start == static_cast<Picoseconds>(1 + 10 * place) * 1'000'000);
  }
}

TEST_CASE("ops that need one fifo overtake a long queue of ops that need two") {
  // Op 0 holds f0 until 100. Ops 1 to 500 need f0 and f1 and wait; ops 501 to 600 need f1 alone, 0.5 each, and
  // overtake: 0 to 50. At 100 op 1 takes both for 1, then op 2, and so on: 600.
  std::vector<LoneOp> ops{make_op(0, 0, {{0, 100 * kUs}})};
  for (int i = 1; i <= 500; ++i) ops.push_back(make_op(i, 0, {{0, 1 * kUs}, {1, 1 * kUs}}));
  for (int i = 501; i <= 600; ++i) ops.push_back(make_op(i, 0, {{1, 0.5 * kUs}}));
  const Finished run = run_all(make_system(601, {fifo(), fifo()}), ops);
  for (std::size_t i = 1; i <= 500; ++i)
    REQUIRE(run.records[i].finish == static_cast<Picoseconds>(100 + i) * 1'000'000);
  for (std::size_t i = 501; i <= 600; ++i)
    REQUIRE(run.records[i].finish == static_cast<Picoseconds>(i - 500) * 500'000);
}

}  // namespace kvcast::tests
