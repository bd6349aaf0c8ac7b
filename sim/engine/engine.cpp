// A discrete-event loop in two phases per instant: settle everything that happens by itself, then grant the fifos.
// Between instants, ops only count down their latencies and work at constant speed, so that the next event is the
// earliest end of either. A lane runs one op at a time, so lanes identify the running ops throughout this file.
#include "engine/engine.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "engine/clock.hpp"
#include "engine/fifo.hpp"
#include "engine/fluid.hpp"
#include "engine/pools.hpp"
#include "engine/timers.hpp"
#include "engine/window.hpp"
#include "engine/works.hpp"

namespace kvcast::engine {

namespace {

class Execution {
 public:
  Execution(const System& system, OpSource& source, Observer* observer)
      : source_(source),
        observer_(observer),
        works_(system),
        window_(system.lanes.size()),
        timers_(system.lanes.size()),
        fluid_(system.lanes.size(), system.resources.size()),
        arbiter_(system.lanes.size(), system.resources.size()),
        pools_(system) {}

  Outcome operator()();

 private:
  // Phase 1: everything that happens at this instant by itself.
  void settle();
  void finish_ops();
  void pull_block();
  void start_lowest();
  bool take_memory(const LiveOp& op);
  void return_memory(std::uint16_t lane);
  void end_latency(std::uint16_t lane);
  // Phase 2: grants fifo resources to waiting ops.
  void hand_out_fifos();
  void begin_work(std::uint16_t lane, double since);
  // Time of the next event; between instants only.
  double next_event();
  void advance(double to);

  OpSource& source_;
  Observer* observer_;
  Clock clock_;
  WorkTable works_;
  OpWindow window_;
  Timers timers_;
  Fluid fluid_;
  FifoArbiter arbiter_;
  MemoryPools pools_;
  Outcome outcome_;

  OpBlock block_;
  OpId gate_ = -1;
  bool gate_passed_ = true, source_ended_ = false;
  std::vector<std::uint16_t> finishing_;  // lanes
  std::vector<FifoArbiter::Grant> granted_;
};

Outcome Execution::operator()() {
  while (true) {
    settle();
    if (outcome_.out_of_memory) break;
    // An op that ends within a picosecond ends at this instant, before the fifos are granted.
    if (arbiter_.due() && next_event() > clock_.instant_end()) hand_out_fifos();
    const double next = next_event();
    if (next == Timers::kNever) break;
    advance(next);
  }
  KVCAST_CHECK(outcome_.out_of_memory || (window_.live() == 0 && source_ended_));
  outcome_.makespan = clock_.absolute();
  outcome_.peaks = pools_.peaks();
  return std::move(outcome_);
}

void Execution::settle() {
  while (!outcome_.out_of_memory) {
    if (!finishing_.empty()) {
      finish_ops();
    } else if (gate_passed_ && !source_ended_) {
      pull_block();
    } else if (window_.has_startable()) {
      start_lowest();
    } else {
      return;
    }
  }
}

void Execution::finish_ops() {
  // In order of id, so that observers see the same order however the ops were stored.
  if (finishing_.size() > 1) {
    std::sort(finishing_.begin(), finishing_.end(),
              [&](std::uint16_t a, std::uint16_t b) { return window_.on_lane(a).id < window_.on_lane(b).id; });
  }
  for (const std::uint16_t lane : finishing_) {
    const LiveOp& op = window_.on_lane(lane);
    if (!op.cost->fifos.empty()) arbiter_.release(op.cost->fifos, clock_.now());
    if (op.has_memory) return_memory(lane);
    ++outcome_.ops;
    ++outcome_.events;
    if (observer_) observer_->finished({op.id, op.tag, lane, op.start, op.work_start, clock_.absolute()});
    if (op.id == gate_) gate_passed_ = true;
    window_.finish(lane);
  }
  finishing_.clear();
}

void Execution::pull_block() {
  if (!source_.next_block(block_)) {
    source_ended_ = true;
    return;
  }
  for (const Work& work : block_.works) works_.add(work.latency, block_.demands_of(work), work.weight);
  if (block_.ops.empty()) return;
  window_.set_gate(gate_);
  for (const Op& op : block_.ops) window_.add(block_, op, works_[op.work]);
  gate_ = window_.arrived() - 1;
  gate_passed_ = false;
  outcome_.peak_live_ops = std::max(outcome_.peak_live_ops, window_.live());
}

void Execution::start_lowest() {
  const std::uint16_t lane = window_.take_startable();
  LiveOp& op = window_.on_lane(lane);
  op.start = clock_.absolute();
  if (op.has_memory && !take_memory(op)) return;
  if (op.cost->latency > 0) {
    timers_.add(clock_.now() + op.cost->latency, lane);
  } else {
    end_latency(lane);
  }
}

bool Execution::take_memory(const LiveOp& op) {
  for (const MemoryDelta& delta : window_.memory_on(op.lane)) {
    if (!(delta.bytes > 0)) continue;
    if (!pools_.take(delta.pool, delta.owner, delta.bytes, op.start)) {
      outcome_.out_of_memory = OutOfMemory{delta.pool,
                                           delta.owner,
                                           op.start,
                                           delta.bytes,
                                           pools_.in_use(delta.pool),
                                           pools_.capacity(delta.pool),
                                           pools_.owners(delta.pool),
                                           op.id,
                                           op.tag};
      return false;
    }
    if (observer_) observer_->memory_changed(delta.pool, op.start, pools_.in_use(delta.pool));
  }
  return true;
}

void Execution::return_memory(std::uint16_t lane) {
  for (const MemoryDelta& delta : window_.memory_on(lane)) {
    if (!(delta.bytes < 0)) continue;
    pools_.give_back(delta.pool, delta.owner, -delta.bytes);
    if (observer_) observer_->memory_changed(delta.pool, clock_.absolute(), pools_.in_use(delta.pool));
  }
}

void Execution::end_latency(std::uint16_t lane) {
  LiveOp& op = window_.on_lane(lane);
  if (op.cost->alone == 0) {
    op.work_start = clock_.absolute();
    finishing_.push_back(lane);
  } else if (op.cost->fifos.empty()) {
    begin_work(lane, clock_.now());
  } else {
    arbiter_.enqueue({lane, clock_.now(), clock_.instant(), op.rank}, op.cost->fifos);
  }
}

void Execution::begin_work(std::uint16_t lane, double since) {
  LiveOp& op = window_.on_lane(lane);
  op.work_start = clock_.absolute(since);
  fluid_.add(lane, op.cost->alone, op.cost->shares, since, op.cost->weight);
}

void Execution::hand_out_fifos() {
  granted_.clear();
  arbiter_.hand_out(granted_);
  // Within the instant, each op works from the moment at which it could start.
  for (const FifoArbiter::Grant& grant : granted_) begin_work(grant.lane, grant.since);
}

double Execution::next_event() {
  fluid_.solve(clock_.now());
  return std::min(timers_.next(), fluid_.next_finish());
}

void Execution::advance(double to) {
  clock_.advance(std::max(to, clock_.now()));
  const double limit = clock_.now() + kRounding;
  while (timers_.next() <= limit) {
    ++outcome_.events;
    end_latency(timers_.pop());
  }
  fluid_.take_finished(limit, finishing_);
  if (clock_.wants_new_origin()) {
    const double back = clock_.new_origin();
    timers_.shift(back);
    arbiter_.shift(back);
    fluid_.shift(back);
  }
}

}  // namespace

Outcome run(const System& system, OpSource& source, Observer* observer) {
  constexpr std::size_t kMost = 65535;
  KVCAST_CHECK(system.resources.size() <= kMost && system.lanes.size() <= kMost && system.pools.size() <= kMost &&
               system.owners.size() <= kMost);
  return Execution(system, source, observer)();
}

}  // namespace kvcast::engine
