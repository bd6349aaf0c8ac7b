// Spans of a decode step: the times of operations, the bytes of copies, and the operation that each one waited for.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/timeline.hpp"
#include "result/experiment.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {

// Explains the start times of operations.
class Waits {
 public:
  // The arguments must outlive the object. `records` are in order of finish.
  Waits(std::span<const engine::Record> records, const TimedSource& source);

  // The operation on another lane whose end let this one start, if its own lane was free before. A join is replaced by
  // the operation that it waited for. Null if there is none among the records.
  const engine::Record* awaited(const engine::Record& record) const;
  // Returns true for joins and other operations that take no time.
  bool is_empty(const engine::Record& record) const;
  // Bytes of a copy; none for the calls that issue it and for other operations.
  std::optional<double> bytes_of(const engine::Record& record) const;

 private:
  const engine::Record* last_predecessor(const engine::Record& record) const;
  const engine::Record* record(engine::OpId id) const;

  const TimedSource& source_;
  std::unordered_map<engine::OpId, const engine::Record*> by_id_;
  std::unordered_map<engine::OpId, Picoseconds> lane_free_;  // when the lane had finished its previous operation
};

// Operations that overlap the block, in order of their ends. The recorder must have kept this block and the one before
// it in full. Times count from the start of the block.
std::vector<result::TimelineSpan> timeline_spans(const Recorder& recorder, const TimedSource& source,
                                                 std::size_t block);

// Label of an operation in a Chrome trace, inside the slices of its step, counted from 1, and of its layer.
engine::TimelineLabel timeline_label(const engine::Record& record, const Waits& waits, const TimedSource& source);

}  // namespace kvcast::simulate
