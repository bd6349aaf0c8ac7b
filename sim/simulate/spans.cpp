#include "simulate/spans.hpp"

#include <array>
#include <unordered_map>

namespace kvcast::simulate {
namespace {

using engine::Record;

// Times that the engine rounded to whole picoseconds differ by at most this where they are equal.
constexpr Picoseconds kSameTime = 2;

class Spans {
 public:
  Spans(const Recorder& recorder, const TimedSource& source) : source_(source), records_(recorder.records()) {
    std::array<const Record*, graph::kLaneCount> last{};
    for (const Record& r : records_) {
      by_id_[r.id] = &r;
      lane_free_[r.id] = last[r.lane] == nullptr ? r.start : last[r.lane]->finish;
      last[r.lane] = &r;
    }
  }

  std::vector<result::TimelineSpan> between(Picoseconds begin, Picoseconds end) {
    std::vector<result::TimelineSpan> spans;
    std::unordered_map<engine::OpId, int> place;
    for (const Record& r : records_) {
      const OpNote n = source_.note(r.tag);
      if (r.finish <= begin || r.start >= end || is_empty(r)) continue;
      result::TimelineSpan& span = spans.emplace_back(result::TimelineSpan{std::string(graph::lane_name(n.lane)),
                                                                           std::string(graph::kind_name(n.kind)),
                                                                           n.label,
                                                                           n.layer,
                                                                           to_seconds(r.start - begin),
                                                                           to_seconds(r.finish - r.start),
                                                                           bytes_of(r),
                                                                           {}});
      // Ends of earlier operations come earlier in the list.
      if (const Record* const cause = awaited(r)) {
        const auto found = place.find(cause->id);
        if (found != place.end()) span.waited_for = found->second;
      }
      place[r.id] = static_cast<int>(spans.size()) - 1;
    }
    return spans;
  }

 private:
  bool is_empty(const Record& r) const {
    return r.start == r.finish || source_.note(r.tag).kind == graph::Kind::kMarker;
  }

  std::optional<double> bytes_of(const Record& r) const {
    const auto [op, is_issue] = OpTag::unpack(r.tag);
    const lower::FlatOp& flat = source_.stream().ops[op];
    if (is_issue || (flat.kind != graph::Kind::kCopyIn && flat.kind != graph::Kind::kCopyOut)) return {};
    const graph::Traffic& traffic = source_.costs().works()[flat.work].traffic;
    return traffic.h2d + traffic.d2h;
  }

  // The operation that the start waited for while its lane was free; joins are looked through.
  const Record* awaited(const Record& r) const {
    if (r.start - lane_free_.at(r.id) <= kSameTime) return nullptr;
    const Record* cause = last_predecessor(r);
    while (cause != nullptr && is_empty(*cause)) {
      if (r.start - cause->finish > kSameTime) return nullptr;
      cause = last_predecessor(*cause);
    }
    return cause == nullptr || cause->lane == r.lane || r.start - cause->finish > kSameTime ? nullptr : cause;
  }

  // Of the operations that it names, the one that ended last; of a copy's calls and the copy, the first call.
  const Record* last_predecessor(const Record& r) const {
    const auto [op, is_issue] = OpTag::unpack(r.tag);
    const lower::FlatOp& flat = source_.stream().ops[op];
    const engine::OpId first_call = source_.engine_id(op) - 1;
    if (source_.costs()[flat.work].issued && r.id != first_call) return record(first_call);
    const Record* last = nullptr;
    for (const std::uint32_t earlier : source_.stream().after_of(flat)) {
      const Record* const other = record(source_.engine_id(earlier));
      if (other != nullptr && (last == nullptr || other->finish > last->finish)) last = other;
    }
    return last;
  }

  const Record* record(engine::OpId id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second;
  }

  const TimedSource& source_;
  const std::vector<Record>& records_;
  std::unordered_map<engine::OpId, const Record*> by_id_;
  std::unordered_map<engine::OpId, Picoseconds> lane_free_;  // when the lane had finished what it ran before
};

}  // namespace

std::vector<result::TimelineSpan> timeline_spans(const Recorder& recorder, const TimedSource& source,
                                                 std::size_t block) {
  return Spans(recorder, source).between(recorder.start_of(block), recorder.block_ends()[block]);
}

}  // namespace kvcast::simulate
