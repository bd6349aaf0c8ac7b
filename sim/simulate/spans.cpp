#include "simulate/spans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kvcast::simulate {
namespace {

using engine::Record;

// Equal times differ by at most this once the engine has rounded them to whole picoseconds.
constexpr Picoseconds kSameStart = 2;

}  // namespace

Waits::Waits(std::span<const Record> records, const TimedSource& source) : source_(source) {
  std::array<const Record*, graph::kLaneCount> last{};
  for (const Record& r : records) {
    by_id_[r.id] = &r;
    lane_free_[r.id] = last[r.lane] == nullptr ? r.start : last[r.lane]->finish;
    last[r.lane] = &r;
  }
}

bool Waits::is_empty(const Record& r) const {
  return r.start == r.finish || source_.note(r.tag).kind == graph::Kind::kMarker;
}

std::optional<double> Waits::bytes_of(const Record& r) const {
  const auto [op, is_issue] = OpTag::unpack(r.tag);
  const lower::FlatOp& flat = source_.stream().ops[op];
  if (is_issue || (flat.kind != graph::Kind::kCopyIn && flat.kind != graph::Kind::kCopyOut)) return {};
  const graph::ByteCounts& traffic = source_.costs().works()[flat.work].traffic;
  return traffic.h2d + traffic.d2h;
}

const Record* Waits::awaited(const Record& r) const {
  if (r.start - lane_free_.at(r.id) <= kSameStart) return nullptr;
  const Record* cause = last_predecessor(r);
  while (cause != nullptr && is_empty(*cause)) {
    if (r.start - cause->finish > kSameStart) return nullptr;
    cause = last_predecessor(*cause);
  }
  return cause == nullptr || cause->lane == r.lane || r.start - cause->finish > kSameStart ? nullptr : cause;
}

// The predecessor that ended last; for a split copy and its later calls, the first call.
const Record* Waits::last_predecessor(const Record& r) const {
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

const Record* Waits::record(engine::OpId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::vector<result::TimelineSpan> timeline_spans(const Recorder& recorder, const TimedSource& source,
                                                 std::size_t block) {
  const Picoseconds begin = recorder.start_of(block), end = recorder.block_ends()[block];
  const Waits waits(recorder.records(), source);
  std::vector<result::TimelineSpan> spans;
  std::unordered_map<engine::OpId, int> index;
  for (const Record& r : recorder.records()) {
    const OpNote n = source.note(r.tag);
    if (r.finish <= begin || r.start >= end || waits.is_empty(r)) continue;
    result::TimelineSpan& span = spans.emplace_back(result::TimelineSpan{std::string(graph::lane_name(n.lane)),
                                                                         std::string(graph::kind_name(n.kind)),
                                                                         n.label,
                                                                         n.layer,
                                                                         to_seconds(r.start - begin),
                                                                         to_seconds(r.finish - r.start),
                                                                         waits.bytes_of(r),
                                                                         {}});
    // Operations that ended earlier come earlier in the list.
    if (const Record* const cause = waits.awaited(r)) {
      const auto found = index.find(cause->id);
      if (found != index.end()) span.waited_for = found->second;
    }
    index[r.id] = static_cast<int>(spans.size()) - 1;
  }
  return spans;
}

engine::TimelineLabel timeline_label(const Record& record, const Waits& waits, const TimedSource& source) {
  const OpNote note = source.note(record.tag);
  engine::TimelineLabel label{note.label, std::string(graph::kind_name(note.kind)), {}, {}, {}};
  const auto& blocks = source.blocks();
  const auto block = std::upper_bound(blocks.begin(), blocks.end(), record.id,
                                      [](engine::OpId id, const TimedSource::BlockIds& b) { return id < b.first; });
  label.groups.push_back(fmt::format("step {}", block - blocks.begin()));
  if (note.layer >= 0) {
    label.groups.push_back(fmt::format("layer {}", note.layer));
    label.numbers.emplace_back("layer", note.layer);
  }
  if (const auto bytes = waits.bytes_of(record)) label.numbers.emplace_back("bytes", *bytes);
  if (const Record* const cause = waits.awaited(record)) label.waited_for = cause->id;
  return label;
}

}  // namespace kvcast::simulate
