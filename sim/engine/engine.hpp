// The engine: runs timed ops on lanes and shared resources, and accounts for time and memory. It knows nothing of
// models, policies or GPUs.
//
// Semantics of a run
// - A lane runs its ops one after the other in order of arrival (a CUDA stream, a host thread).
// - An op starts when its lane is free and every op in `after` has finished. It spends its latency using nothing, then
//   works until all of its demands are served; they advance in proportion, so that an op that runs alone works for
//   max over its resources of demand / rate.
// - Fair resources are shared by progressive filling of dominant shares, weighted by the works (fluid.hpp). A
//   fifo resource serves one op at a time, in the order in which ops become ready to work, ties by lower rank; an op
//   takes all its fifo resources together, at the start of its work, and holds none while it waits (fifo.hpp).
// - Times up to 1 ps after the first of an instant belong to that instant. All events of an instant are settled
//   first, in order of time; at equal times finishes come before starts, and starts by lower id; latencies of 0 and ops
//   without demand complete immediately. Then fifo resources are granted. Instants only decide about order: every
//   time is kept exactly.
// - An op allocates the memory of its positive deltas when it starts and frees that of its negative ones when it
//   finishes. An allocation that does not fit ends the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "graph/op.hpp"

namespace kvcast::engine {

using graph::OpId;

enum class Sharing : std::uint8_t { kFair, kFifo };

struct Resource {
  std::string name;
  double rate = 0;  // units per second
  Sharing sharing = Sharing::kFair;
};

struct Pool {
  std::string name;
  double capacity_bytes = 0;  // may be infinite
};

// The objects that ops refer to by index, at most 65535 of each.
struct System {
  std::vector<Resource> resources;
  std::vector<std::string> lanes;
  std::vector<Pool> pools;
  std::vector<std::string> owners;  // owners of memory
};

struct Demand {
  std::uint16_t resource = 0;
  double amount = 0;  // units of the resource; 0: no demand
};

// Bytes allocated from a pool at the op's start (> 0) or freed at its finish (< 0).
struct MemoryDelta {
  std::uint16_t pool = 0, owner = 0;
  double bytes = 0;
};

// The cost of one op or of many equal ones. A fifo resource occurs at most once.
struct Work {
  double latency = 0;                                // picoseconds, not necessarily whole
  std::uint32_t demands_begin = 0, demands_end = 0;  // range of OpBlock::demands
  double weight = 1;                                 // rate at which its speed grows where resources are shared; > 0
};

// Works are numbered from 0 in order of arrival, over all blocks of a run.
using WorkId = std::uint32_t;

struct Op {
  std::uint64_t tag = 0;                           // chosen by the caller; returned in Record
  OpId rank = -1;                                  // breaks ties for a fifo, lower first; negative: the op's id
  WorkId work = 0;                                 // a work of this block or an earlier one
  std::uint32_t after_begin = 0, after_end = 0;    // range of OpBlock::after: the ops to wait for, earlier ones only
  std::uint32_t memory_begin = 0, memory_end = 0;  // range of OpBlock::memory
  std::uint16_t lane = 0;
};

// Ops that arrive together, in order of their ids, and the works that are new with them. Demands, predecessors and
// memory deltas are flat arrays; works and ops refer to ranges of them. The engine copies these; works stay known until
// the end of the run.
struct OpBlock {
  std::vector<Work> works;
  std::vector<Demand> demands;
  std::vector<Op> ops;
  std::vector<OpId> after;
  std::vector<MemoryDelta> memory;

  void clear() {
    works.clear();
    demands.clear();
    ops.clear();
    after.clear();
    memory.clear();
  }
  // Appends a work without demands.
  void add_work(double latency, double weight = 1) {
    const auto first = static_cast<std::uint32_t>(demands.size());
    works.push_back({latency, first, first, weight});
  }
  // Adds a demand to the work that was appended last.
  void add_demand(std::uint16_t resource, double amount) {
    demands.push_back({resource, amount});
    ++works.back().demands_end;
  }
  // Appends an op that waits for nothing and changes no memory.
  Op& add_op(std::uint16_t lane, WorkId work) {
    const auto waits = static_cast<std::uint32_t>(after.size()), deltas = static_cast<std::uint32_t>(memory.size());
    return ops.emplace_back(Op{0, -1, work, waits, waits, deltas, deltas, lane});
  }
  // Adds an op to wait for to the op that was appended last.
  void add_after(OpId id) {
    after.push_back(id);
    ++ops.back().after_end;
  }
  // Adds a memory delta to the op that was appended last.
  void add_memory(const MemoryDelta& delta) {
    memory.push_back(delta);
    ++ops.back().memory_end;
  }
  std::span<const Demand> demands_of(const Work& work) const {
    return range(demands, work.demands_begin, work.demands_end);
  }
  std::span<const OpId> after_of(const Op& op) const { return range(after, op.after_begin, op.after_end); }
  std::span<const MemoryDelta> memory_of(const Op& op) const { return range(memory, op.memory_begin, op.memory_end); }

 private:
  template <typename T>
  static std::span<const T> range(const std::vector<T>& all, std::uint32_t begin, std::uint32_t end) {
    KVCAST_CHECK(begin <= end && end <= all.size());
    return std::span(all).subspan(begin, end - begin);
  }
};

// A source of ops. Ids count up from 0 in order of arrival, over all blocks. The last op of a block is its gate: the
// next block is requested at the instant at which the gate finishes, before anything starts at that instant. That is
// equivalent to having had all ops from the start if and only if every op of a block waits for the gate of the block
// before, directly, through ops of its own block or through the order of its lane; run() checks this for each op
// (waits_for_gate in window.hpp). Ops may outlive the gate of their block. Memory grows with the unfinished ops and
// with the works, not with all ops.
class OpSource {
 public:
  virtual ~OpSource() = default;
  // Replaces the content of `out` by the next block; false at the end. A block without ops is skipped once its works
  // are added.
  virtual bool next_block(OpBlock& out) = 0;
};

// A finished op. start ≤ work_start ≤ finish; it worked from work_start on, after its latency and its wait for fifos.
// For an op without work, work_start is its finish.
struct Record {
  OpId id = 0;
  std::uint64_t tag = 0;
  std::uint16_t lane = 0;
  Picoseconds start = 0, work_start = 0, finish = 0;
};

// Receives the events of a run in order of time.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void finished(const Record& record) = 0;
  // The bytes in use in a pool have become `in_use`.
  virtual void memory_changed(std::uint16_t pool, Picoseconds at, double in_use) {
    static_cast<void>(pool), static_cast<void>(at), static_cast<void>(in_use);
  }
};

struct OwnerBytes {
  std::uint16_t owner = 0;
  double bytes = 0;
};

struct PoolPeak {
  std::uint16_t pool = 0;
  double peak_bytes = 0;
  Picoseconds at = 0;              // first moment of the peak
  std::vector<OwnerBytes> owners;  // bytes in use at that moment, most first; owners of nothing are left out
};

// An allocation that did not fit.
struct OutOfMemory {
  std::uint16_t pool = 0, owner = 0;  // owner of the request
  Picoseconds at = 0;
  double requested = 0, in_use = 0, capacity = 0;  // bytes
  std::vector<OwnerBytes> owners;                  // bytes in use then, most first
  OpId op = 0;
  std::uint64_t tag = 0;
};

struct Outcome {
  Picoseconds makespan = 0;     // finish of the last op, or the moment of out_of_memory
  std::int64_t ops = 0;         // finished ops
  std::int64_t events = 0;      // ends of latencies and of ops
  std::vector<PoolPeak> peaks;  // one per pool
  std::optional<OutOfMemory> out_of_memory;
  std::size_t peak_live_ops = 0;  // most ops held at once: arrived, not finished
};

// Runs all ops of the source. The observer may be null. Aborts on ops that break the rules above (unknown lane, work or
// resource, a range beyond its array, `after` not earlier, negative or non-finite numbers, a demand on a resource of
// rate 0, more memory freed than allocated); callers that make ops from user input check it before. Throws UserError
// when simulated time passes 2^62 ps (53 days).
Outcome run(const System& system, OpSource& source, Observer* observer);

// Supplies ops that are all known in advance, as one block.
class OneBlock final : public OpSource {
 public:
  explicit OneBlock(OpBlock block) : block_(std::move(block)) {}
  bool next_block(OpBlock& out) override {
    out = std::exchange(block_, {});
    return !out.ops.empty();
  }

 private:
  OpBlock block_;
};

}  // namespace kvcast::engine
