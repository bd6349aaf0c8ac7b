#include "workload/timed.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace kvcast::workload {
namespace {

using hardware::Resource;

constexpr double kUncertaintyStep = 1.0 / 1024;

metrics::Bound pace_of(const graph::Op& op, const hardware::Cost& cost) {
  using metrics::Bound;
  if (!cost.bound) {
    const bool on_host = op.kind == graph::Kind::kLaunch || op.kind == graph::Kind::kSync;
    return on_host ? Bound::kHostThread : Bound::kKernelLatency;
  }
  switch (*cost.bound) {
    case Resource::kHbm:
      return Bound::kHbm;
    case Resource::kTensor:
      return Bound::kTensor;
    case Resource::kVector:
      return Bound::kVector;
    case Resource::kZeroCopy:
    case Resource::kLinkIn:
    case Resource::kLinkOut:
    case Resource::kLink:
      return Bound::kLink;
    case Resource::kH2d:
    case Resource::kD2h:
      return Bound::kCopyEngine;
    case Resource::kDram:
      return Bound::kDram;
    case Resource::kCores:
      return Bound::kCores;
    default:
      return Bound::kHostThread;
  }
}

}  // namespace

// kind 8 | lane 8 | bound 8 | origin 8 | layer + 1 in 12 | label 8 | uncertainty in 1/1024 in 12
std::uint64_t TimedSource::pack(const OpNote& note) {
  auto label =
      std::find_if(labels_.begin(), labels_.end(), [&](const char* l) { return std::strcmp(l, note.label) == 0; });
  if (label == labels_.end()) label = labels_.insert(labels_.end(), note.label);
  KVCAST_CHECK(labels_.size() <= 256 && note.layer < 4095);
  const double steps = std::min(4095.0, static_cast<double>(note.uncertainty) / kUncertaintyStep + 0.5);
  return static_cast<std::uint64_t>(note.kind) | static_cast<std::uint64_t>(note.lane) << 8 |
         static_cast<std::uint64_t>(note.bound) << 16 | static_cast<std::uint64_t>(note.origin) << 24 |
         static_cast<std::uint64_t>(note.layer + 1) << 32 | static_cast<std::uint64_t>(label - labels_.begin()) << 44 |
         static_cast<std::uint64_t>(steps) << 52;
}

OpNote TimedSource::note(std::uint64_t tag) const {
  OpNote note;
  note.kind = static_cast<graph::Kind>(tag & 0xFF);
  note.lane = static_cast<graph::Lane>(tag >> 8 & 0xFF);
  note.bound = static_cast<metrics::Bound>(tag >> 16 & 0xFF);
  note.origin = static_cast<Origin>(tag >> 24 & 0xFF);
  note.layer = static_cast<std::int16_t>(static_cast<int>(tag >> 32 & 0xFFF) - 1);
  note.label = labels_[tag >> 44 & 0xFF];
  note.uncertainty = static_cast<float>(static_cast<double>(tag >> 52) * kUncertaintyStep);
  return note;
}

engine::OpId TimedSource::engine_id(graph::OpId id) const {
  for (auto map = maps_.rbegin(); map != maps_.rend(); ++map) {
    if (id >= map->first) return map->ids[static_cast<std::size_t>(id - map->first)];
  }
  KVCAST_CHECK(!"an op waits for one that is further back than WorkSource::kReach");
  return -1;
}

engine::Op& TimedSource::append(graph::Lane lane, engine::Block& out) {
  ++next_id_;
  return out.add_op(static_cast<std::uint16_t>(lane), next_work_++);
}

void TimedSource::add(const graph::Op& op, engine::Block& out) {
  const hardware::Cost cost = costs_.cost(op);
  const std::uint64_t tag =
      pack({op.kind, op.lane, pace_of(op, cost), cost.origin, op.layer, cost.uncertainty, op.label});
  const auto issue = [&](double seconds) {
    const graph::Lane issuer = std::get<graph::Copy>(op.work).issuer;
    out.add_work(0);
    out.add_demand(static_cast<std::uint16_t>(cost.issue->thread), seconds);
    append(issuer, out).tag = pack({graph::Kind::kLaunch, issuer, metrics::Bound::kHostThread, cost.origin, op.layer,
                                    cost.uncertainty, "copy issue"});
  };
  engine::OpId first_call = -1;
  if (cost.issue) {
    first_call = next_id_;
    issue(cost.issue->first);
    for (const graph::OpId id : op.after) out.add_after(engine_id(id));
  }
  out.add_work(static_cast<double>(cost.latency));
  for (const hardware::Demand& d : cost.demands) out.add_demand(static_cast<std::uint16_t>(d.resource), d.amount);
  maps_.back().ids.push_back(next_id_);
  append(op.lane, out).tag = tag;
  if (first_call >= 0) {
    out.add_after(first_call);
  } else {
    for (const graph::OpId id : op.after) out.add_after(engine_id(id));
  }
  for (const graph::MemoryDelta& m : op.memory) {
    out.add_memory({static_cast<std::uint16_t>(m.pool), m.owner, m.bytes});
  }
  if (cost.issue && cost.issue->rest > 0) {
    issue(cost.issue->rest);
    out.add_after(first_call);
  }
}

bool TimedSource::next_block(engine::Block& out) {
  if (!work_.next_block(block_)) return false;
  out.clear();
  out.ops.reserve(block_.size());
  maps_.push_back({next_graph_id_, {}});
  maps_.back().ids.reserve(block_.size());
  if (maps_.size() > graph::WorkSource::kReach + 1) maps_.pop_front();
  BlockInfo info;
  info.first = next_id_;
  for (const graph::Op& op : block_) {
    add(op, out);
    info.traffic += graph::traffic_of(op.work);
  }
  next_graph_id_ += static_cast<graph::OpId>(block_.size());
  info.last = next_id_ - 1;
  blocks_.push_back(info);
  return true;
}

void Recorder::finished(const engine::Record& record) {
  const auto& blocks = source_.blocks();
  if (ends_.size() < blocks.size() && record.id == blocks[ends_.size()].last) ends_.push_back(record.finish);
  const auto from = static_cast<std::size_t>(detailed_from_);
  if (from < blocks.size() && record.id >= blocks[from].first) records_.push_back(record);
}

std::vector<metrics::Span> Recorder::spans(Picoseconds begin, Picoseconds end) const {
  std::vector<metrics::Span> spans;
  for (const engine::Record& r : records_) {
    if (r.finish <= begin || r.start >= end) continue;
    const OpNote n = source_.note(r.tag);
    spans.push_back({r.start, r.finish, n.kind, n.lane, n.bound, n.uncertainty, n.origin});
  }
  return spans;
}

std::map<std::string, double> uncertain_seconds(graph::WorkSource& work, const hardware::CostModel& costs) {
  std::map<std::string, double> by_source;
  std::vector<graph::Op> block;
  while (work.next_block(block)) {
    for (const graph::Op& op : block) costs.add_uncertain(op, by_source);
  }
  return by_source;
}

engine::System make_system(const hardware::CostModel& costs, const std::vector<std::string>& owners) {
  engine::System system;
  for (int r = 0; r < hardware::kResourceCount; ++r) {
    const auto resource = static_cast<Resource>(r);
    const auto sharing = hardware::is_fifo(resource) ? engine::Sharing::kFifo : engine::Sharing::kFair;
    system.resources.push_back({std::string(hardware::resource_name(resource)), costs.rate(resource), sharing});
  }
  for (int l = 0; l < graph::kLaneCount; ++l) {
    system.lanes.emplace_back(graph::lane_name(static_cast<graph::Lane>(l)));
  }
  system.pools = {{"hbm", costs.capacity(graph::Pool::kHbm)}, {"dram", costs.capacity(graph::Pool::kDram)}};
  system.owners = owners;
  return system;
}

}  // namespace kvcast::workload
