// The spans of a decode step: what ran when, the bytes of copies, and which operation each one waited for.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/timeline.hpp"
#include "result/experiment.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {

// Why operations started when they did.
class Waits {
 public:
  // All must outlive this. `records` are in order of finish.
  Waits(std::span<const engine::Record> records, const TimedSource& source);

  // The operation on another lane whose end let this one start, because its lane was free before; joins are looked
  // through. Null where there is none among the records.
  const engine::Record* awaited(const engine::Record& record) const;
  // Joins and other operations that take no time.
  bool is_empty(const engine::Record& record) const;
  // Of a copy itself, not of the calls that issue it.
  std::optional<double> bytes_of(const engine::Record& record) const;

 private:
  const engine::Record* last_predecessor(const engine::Record& record) const;
  const engine::Record* record(engine::OpId id) const;

  const TimedSource& source_;
  std::unordered_map<engine::OpId, const engine::Record*> by_id_;
  std::unordered_map<engine::OpId, Picoseconds> lane_free_;  // when the lane had finished what it ran before
};

// Operations that overlap the block, which the recorder must have kept in full with the block before it, in order of
// their ends. Times count from the start of the block.
std::vector<result::TimelineSpan> timeline_spans(const Recorder& recorder, const TimedSource& source,
                                                 std::size_t block);

// How a Chrome trace shows an operation: in the slices of its step, counted from 1, and of its layer.
engine::TimelineLabel timeline_label(const engine::Record& record, const Waits& waits, const TimedSource& source);

}  // namespace kvcast::simulate
