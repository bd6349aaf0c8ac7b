// Converts lowered work to timed ops: connects lowering to the engine by the costs of a machine, and records what the
// metrics need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "engine/engine.hpp"
#include "graph/op.hpp"
#include "lower/flat.hpp"
#include "metrics/attribution.hpp"
#include "simulate/cost_table.hpp"

namespace kvcast::simulate {

// The origin of an engine op, carried through the engine in its tag.
struct OpTag {
  std::uint32_t op = 0;   // index in the stream
  bool is_issue = false;  // a call that issues the op, which is a copy
  std::uint64_t packed() const { return std::uint64_t{op} << 1 | (is_issue ? 1 : 0); }
  static OpTag unpack(std::uint64_t tag) { return {static_cast<std::uint32_t>(tag >> 1), (tag & 1) != 0}; }
};

// Properties of an engine op that timelines, breakdowns and messages show.
struct OpNote {
  graph::Kind kind = graph::Kind::kMarker;
  graph::Lane lane = graph::Lane::kCompute;
  metrics::Bound bound = metrics::Bound::kHbm;
  Origin origin = Origin::kExact;
  std::int16_t layer = -1;
  float uncertainty = 0;
  const char* label = "";
};

// Hands the blocks of a stream to the engine. A copy whose issuing thread is faster than the copy engine becomes three
// ops: the first call on the thread, the copy, and the other calls, which overlap with it.
class TimedSource final : public engine::OpSource {
 public:
  // All arguments must outlive the source. memory_scales: factors on the bytes of each owner; empty: none. blocks:
  // largest number of blocks to hand over.
  TimedSource(const lower::FlatStream& stream, CostTable& costs, std::span<const double> memory_scales = {},
              std::size_t blocks = static_cast<std::size_t>(-1), Cancel cancel = {});
  // Throws Cancelled.
  bool next_block(engine::OpBlock& out) override;

  // Engine ids of the first and the last op of each block handed over so far.
  struct BlockIds {
    engine::OpId first = 0, last = 0;
  };
  const std::vector<BlockIds>& blocks() const { return blocks_; }
  OpNote note(std::uint64_t tag) const;
  const lower::FlatStream& stream() const { return stream_; }
  CostTable& costs() const { return costs_; }
  const Cancel& cancel() const { return cancel_; }
  // Engine id of an op that has been handed over; for a copy that of the copy, not of its calls.
  engine::OpId engine_id(std::uint32_t op) const { return ids_[op]; }

 private:
  void add(std::uint32_t index, engine::OpBlock& out);
  void add_split_copy(std::uint32_t index, const CostTable::Entry& cost, engine::OpBlock& out);
  void wait_for_predecessors(const lower::FlatOp& op, engine::OpBlock& out) const;
  void add_memory(const lower::FlatOp& op, engine::OpBlock& out) const;
  engine::WorkId engine_work(lower::WorkId id, const CostTable::Entry& cost, engine::OpBlock& out);
  engine::WorkId engine_calls(lower::WorkId id, const CostTable::Entry& cost, engine::OpBlock& out);
  engine::Op& add_op(std::uint16_t lane, engine::WorkId work, OpTag tag, engine::OpBlock& out);

  static constexpr engine::WorkId kNotYet = 0xFFFFFFFFu;

  const lower::FlatStream& stream_;
  CostTable& costs_;
  std::span<const double> memory_scales_;
  std::size_t end_;  // blocks to hand over
  Cancel cancel_;
  std::vector<BlockIds> blocks_;
  std::vector<engine::OpId> ids_;      // by op
  std::vector<engine::WorkId> works_;  // engine's number of a work
  std::vector<engine::WorkId> calls_;  // number of a work's first call; the other calls have the next one
  engine::OpId next_id_ = 0;
  engine::WorkId next_work_ = 0;
};

// Keeps the finish of every block's last op, and the records of all ops from block `detailed_from` on, which may be
// beyond the last block.
class Recorder final : public engine::Observer {
 public:
  Recorder(const TimedSource& source, std::size_t detailed_from);
  void finished(const engine::Record& record) override;

  const std::vector<Picoseconds>& block_ends() const { return ends_; }
  Picoseconds start_of(std::size_t block) const { return block == 0 ? Picoseconds{0} : ends_[block - 1]; }
  std::size_t detailed_from() const { return detailed_from_; }
  // Time by which the ops of a block outlive its end: work that is left over for later blocks. The block must have
  // ended.
  Picoseconds lag(std::size_t block) const { return std::max<Picoseconds>(0, last_finishes_[block] - ends_[block]); }
  // Ops that overlap [begin, end), as spans for the attribution.
  std::vector<metrics::BusySpan> spans(Picoseconds begin, Picoseconds end) const;
  // In order of finish.
  const std::vector<engine::Record>& records() const { return records_; }

 private:
  const TimedSource& source_;
  std::size_t detailed_from_;
  std::vector<Picoseconds> ends_;
  std::vector<Picoseconds> last_finishes_;  // by ended block: last finish among its ops so far
  std::vector<engine::Record> records_;
};

// The engine's system for a machine: its resources, the lanes of the graph, its memory pools.
engine::System make_system(const hardware::CostModel& costs);

}  // namespace kvcast::simulate
