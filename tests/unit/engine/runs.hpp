// Small runs for the engine's tests: ops written in one line, records by id.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

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

// Hands out the same ops in blocks that end after the ids given.
class Blocks final : public OpSource {
 public:
  Blocks(std::vector<Op> ops, std::vector<std::size_t> ends) : ops_(std::move(ops)), ends_(std::move(ends)) {}
  bool next_block(std::vector<Op>& out) override {
    out.clear();
    if (at_ == ops_.size()) return false;
    const std::size_t end = block_ < ends_.size() ? ends_[block_++] : ops_.size();
    out.assign(ops_.begin() + static_cast<std::ptrdiff_t>(at_), ops_.begin() + static_cast<std::ptrdiff_t>(end));
    at_ = end;
    return true;
  }

 private:
  std::vector<Op> ops_;
  std::vector<std::size_t> ends_;
  std::size_t at_ = 0, block_ = 0;
};

inline Finished run_source(const System& system, OpSource& source) {
  Recorder recorder;
  Outcome outcome = run(system, source, &recorder);
  return {std::move(outcome), std::move(recorder.records), std::move(recorder.order)};
}

inline Finished run_all(const System& system, std::vector<Op> ops) {
  OneBlock source(std::move(ops));
  return run_source(system, source);
}

inline Op make_op(int lane, double latency, std::initializer_list<Demand> demands = {},
                  std::initializer_list<OpId> after = {}) {
  Op op;
  op.lane = static_cast<std::uint16_t>(lane);
  op.latency = latency;
  op.demands.assign(demands.begin(), demands.end());
  op.after.assign(after.begin(), after.end());
  return op;
}

// Lanes without names worth telling.
inline System make_system(int lanes, std::vector<Resource> resources) {
  System system;
  system.resources = std::move(resources);
  for (int i = 0; i < lanes; ++i) system.lanes.push_back("lane " + std::to_string(i));
  return system;
}

// A resource that serves one unit a picosecond, so that demands read as picoseconds alone.
inline Resource fair(double units_per_ps = 1) { return {"fair", units_per_ps * kPicosPerSecond, Sharing::kFair}; }
inline Resource fifo(double units_per_ps = 1) { return {"fifo", units_per_ps * kPicosPerSecond, Sharing::kFifo}; }

}  // namespace kvcast::engine
