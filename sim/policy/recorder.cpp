#include "policy/recorder.hpp"

#include "base/error.hpp"

namespace kvcast::policy {

OpId Recorder::add(Kind kind, Lane lane, const char* label, const graph::Work& work, After after) {
  graph::Op& op = ops_.emplace_back();
  op.kind = kind;
  op.lane = lane;
  op.label = label;
  op.work = work;
  const auto id = static_cast<OpId>(ops_.size()) - 1;
  for (const OpId earlier : after) {
    KVCAST_CHECK(earlier < id);
    if (earlier >= 0) op.after.push_back(earlier);
  }
  return id;
}

OpId Recorder::kernel(Lane lane, Kind kind, const char* label, const graph::Work& work, After after) {
  return add(kind, lane, label, work, after);
}

OpId Recorder::host(Lane thread, Kind kind, const char* label, HostCall call, double count, After after) {
  return add(kind, thread, label, graph::HostWork{call, count}, after);
}

OpId Recorder::copy(Lane lane, const char* label, const Copy& copy, After after) {
  const bool in = copy.direction == Direction::kHostToDevice;
  return add(in ? Kind::kCopyIn : Kind::kCopyOut, lane, label, copy, after);
}

OpId Recorder::cpu(const char* label, const CpuWork& work, After after) {
  return add(Kind::kCpuWork, Lane::kCpu, label, work, after);
}

OpId Recorder::join(Lane lane, After after) { return add(Kind::kMarker, lane, "join", graph::Marker{}, after); }

OpId Recorder::attention(const DecodeAttention& work, After after) {
  return add(Kind::kAttention, Lane::kCompute, "attention", work, after);
}

OpId Recorder::noted(std::string_view event) const {
  const auto found = noted_.find(std::string(event));
  return found == noted_.end() ? -1 : found->second;
}

void Recorder::done(OpId op) {
  KVCAST_CHECK(done_ < 0 && op >= 0 && op < static_cast<OpId>(ops_.size()));
  done_ = op;
}

void Recorder::next_step() {
  ready_ = add(Kind::kMarker, Lane::kCompute, "ready", graph::Marker{}, {});
  done_ = -1;
}

graph::ByteCounts Recorder::traffic() const {
  graph::ByteCounts sum;
  for (const graph::Op& op : ops_) sum += graph::traffic_of(op.work);
  return sum;
}

}  // namespace kvcast::policy
