// Small runs for the engine's tests: ops written in one line, each with its work, and records by id.
#pragma once

#include <catch2/catch.hpp>

#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "engine/engine.hpp"

namespace kvcast::engine {

inline constexpr double kUs = 1e6;  // picoseconds

struct Finished {
  Outcome outcome;
  std::vector<Record> records;  // by id
  std::vector<OpId> order;      // ids as they finished
};

class Recorder final : public Observer {
 public:
  void finished(const Record& record) override {
    if (records.size() <= static_cast<std::size_t>(record.id)) records.resize(static_cast<std::size_t>(record.id) + 1);
    records[static_cast<std::size_t>(record.id)] = record;
    order.push_back(record.id);
  }
  std::vector<Record> records;
  std::vector<OpId> order;
};

// An op with its work and everything else that it refers to.
struct LoneOp {
  std::uint16_t lane = 0;
  double latency = 0;  // picoseconds
  std::vector<Demand> demands;
  std::vector<OpId> after;
  std::vector<MemoryDelta> memory;
  std::uint64_t tag = 0;
  OpId rank = -1;
  double weight = 1;
};

// Appends the op with a work of its own, whose id is `work`.
inline void append(OpBlock& block, const LoneOp& op, WorkId work) {
  block.add_work(op.latency, op.weight);
  for (const Demand& demand : op.demands) block.add_demand(demand.resource, demand.amount);
  Op& added = block.add_op(op.lane, work);
  added.tag = op.tag;
  added.rank = op.rank;
  for (const OpId id : op.after) block.add_after(id);
  for (const MemoryDelta& delta : op.memory) block.add_memory(delta);
}

// Hands out the same ops in blocks that end after the ids given.
class Blocks final : public OpSource {
 public:
  Blocks(std::vector<LoneOp> ops, std::vector<std::size_t> ends) : ops_(std::move(ops)), ends_(std::move(ends)) {}
  bool next_block(OpBlock& out) override {
    out.clear();
    if (at_ == ops_.size()) return false;
    const std::size_t end = block_ < ends_.size() ? ends_[block_++] : ops_.size();
    for (; at_ < end; ++at_) append(out, ops_[at_], static_cast<WorkId>(at_));
    return true;
  }

 private:
  std::vector<LoneOp> ops_;
  std::vector<std::size_t> ends_;
  std::size_t at_ = 0, block_ = 0;
};

inline Finished run_source(const System& system, OpSource& source) {
  Recorder recorder;
  Outcome outcome = run(system, source, &recorder);
  return {std::move(outcome), std::move(recorder.records), std::move(recorder.order)};
}

inline Finished run_all(const System& system, const std::vector<LoneOp>& ops) {
  Blocks source(ops, {});
  return run_source(system, source);
}

inline LoneOp make_op(int lane, double latency, std::vector<Demand> demands = {}, std::vector<OpId> after = {}) {
  return {static_cast<std::uint16_t>(lane), latency, std::move(demands), std::move(after), {}, 0, -1};
}

// Returns whether the run breaks an invariant.
inline bool breaks_invariant(const System& system, OpSource& source) {
  try {
    run(system, source, nullptr);
  } catch (const BrokenInvariant&) {
    return true;
  }
  return false;
}
inline bool breaks_invariant(const System& system, const std::vector<LoneOp>& ops,
                             const std::vector<std::size_t>& ends) {
  Blocks source(ops, ends);
  return breaks_invariant(system, source);
}

// Lanes with arbitrary names.
inline System make_system(int lanes, std::vector<Resource> resources) {
  System system;
  system.resources = std::move(resources);
  for (int i = 0; i < lanes; ++i) system.lanes.push_back("lane " + std::to_string(i));
  return system;
}

// A resource that serves one unit a picosecond, so that a demand equals the picoseconds that it takes alone.
inline Resource fair(double units_per_ps = 1) { return {"fair", units_per_ps * kPicosPerSecond, Sharing::kFair}; }
inline Resource fifo(double units_per_ps = 1) { return {"fifo", units_per_ps * kPicosPerSecond, Sharing::kFifo}; }

}  // namespace kvcast::engine
