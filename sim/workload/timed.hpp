// Work in, timed ops out: joins lowering to the engine through the hardware's cost model, and keeps what the metrics
// need.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "graph/source.hpp"
#include "graph/traffic.hpp"
#include "hardware/cost_model.hpp"
#include "metrics/attribution.hpp"

namespace kvcast::workload {

// What is known of an op when it is made, carried through the engine in its tag.
struct OpNote {
  graph::Kind kind = graph::Kind::kMarker;
  graph::Lane lane = graph::Lane::kCompute;
  metrics::Bound bound = metrics::Bound::kHbm;
  Origin origin = Origin::kExact;
  std::int16_t layer = -1;
  float uncertainty = 0;
  const char* label = "";
};

// Turns each block of work into timed ops. A copy whose issuing thread is faster than the copy engine becomes three:
// the first call on the thread, the copy, the other calls beside it.
class TimedSource final : public engine::OpSource {
 public:
  TimedSource(graph::WorkSource& work, const hardware::CostModel& costs) : work_(work), costs_(costs) {}
  bool next_block(engine::Block& out) override;

  // By block: the engine's id of its first and of its last op, and the bytes that it moves.
  struct BlockInfo {
    engine::OpId first = 0, last = 0;
    graph::Traffic traffic;
  };
  const std::vector<BlockInfo>& blocks() const { return blocks_; }
  OpNote note(std::uint64_t tag) const;

 private:
  void add(const graph::Op& op, engine::Block& out);
  // Appends an op of the work that was appended last.
  engine::Op& append(graph::Lane lane, engine::Block& out);
  std::uint64_t pack(const OpNote& note);
  engine::OpId engine_id(graph::OpId id) const;

  graph::WorkSource& work_;
  const hardware::CostModel& costs_;
  std::vector<graph::Op> block_;
  std::vector<BlockInfo> blocks_;
  // Engine ids of the graph ops of the latest blocks, as many as an op may wait for, oldest first.
  struct IdMap {
    graph::OpId first;
    std::vector<engine::OpId> ids;
  };
  std::deque<IdMap> maps_;
  graph::OpId next_graph_id_ = 0;
  engine::OpId next_id_ = 0;
  engine::WorkId next_work_ = 0;
  std::vector<const char*> labels_;  // distinct label texts
};

// Keeps the finish of every block's last op, and the records of all ops from block `detailed_from` on.
class Recorder final : public engine::Observer {
 public:
  explicit Recorder(const TimedSource& source, int detailed_from) : source_(source), detailed_from_(detailed_from) {}
  void finished(const engine::Record& record) override;

  const std::vector<Picoseconds>& block_ends() const { return ends_; }
  // Ops that overlap [begin, end), as spans for the attribution.
  std::vector<metrics::Span> spans(Picoseconds begin, Picoseconds end) const;
  const std::vector<engine::Record>& records() const { return records_; }

 private:
  const TimedSource& source_;
  int detailed_from_;
  std::vector<Picoseconds> ends_;
  std::vector<engine::Record> records_;
};

// By the source of costs, how many seconds the work's ops may be off by it, one after the other.
std::map<std::string, double> uncertain_seconds(graph::WorkSource& work, const hardware::CostModel& costs);

// The engine's system for a machine: its resources, the lanes of the graph, its memory pools.
engine::System make_system(const hardware::CostModel& costs, const std::vector<std::string>& owners);

}  // namespace kvcast::workload
