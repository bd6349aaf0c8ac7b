#include "simulate/timed.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::simulate {

using hardware::Resource;

TimedSource::TimedSource(const lower::FlatStream& stream, CostTable& costs, std::span<const double> memory_scales,
                         std::size_t blocks, Cancel cancel)
    : stream_(stream),
      costs_(costs),
      memory_scales_(memory_scales),
      end_(std::min(blocks, stream.blocks.size())),
      cancel_(std::move(cancel)),
      works_(costs.works().size(), kNotYet) {
  ids_.reserve(stream.ops.size());
  blocks_.reserve(end_);
}

OpNote TimedSource::note(std::uint64_t tag) const {
  const auto [index, is_issue] = OpTag::unpack(tag);
  const lower::FlatOp& op = stream_.ops[index];
  const CostTable::Entry& cost = costs_[op.work];
  if (is_issue) {
    const graph::Lane thread = std::get<graph::Copy>(costs_.works()[op.work].work).issuer;
    return {graph::Kind::kLaunch, thread,      metrics::Bound::kHostThread, cost.origin, op.layer,
            cost.uncertainty,     "copy issue"};
  }
  const bool on_host = op.kind == graph::Kind::kLaunch || op.kind == graph::Kind::kSync;
  const metrics::Bound bound = cost.waits && on_host ? metrics::Bound::kHostThread : cost.bound;
  return {op.kind, op.lane, bound, cost.origin, op.layer, cost.uncertainty, op.label};
}

engine::WorkId TimedSource::engine_work(lower::WorkId id, const CostTable::Entry& cost, engine::OpBlock& out) {
  if (works_[id] != kNotYet) return works_[id];
  out.add_work(cost.latency, cost.weight);
  for (const engine::Demand& d : costs_.demands_of(cost)) out.add_demand(d.resource, d.amount);
  return works_[id] = next_work_++;
}

engine::WorkId TimedSource::engine_calls(lower::WorkId id, const CostTable::Entry& cost, engine::OpBlock& out) {
  if (calls_.empty()) calls_.assign(works_.size(), kNotYet);
  if (calls_[id] != kNotYet) return calls_[id];
  for (const double seconds : {cost.issue.first, std::max(0.0, cost.issue.rest)}) {
    out.add_work(0);
    out.add_demand(static_cast<std::uint16_t>(cost.issue.thread), seconds);
  }
  next_work_ += 2;
  return calls_[id] = next_work_ - 2;
}

engine::Op& TimedSource::add_op(std::uint16_t lane, engine::WorkId work, OpTag tag, engine::OpBlock& out) {
  engine::Op& op = out.add_op(lane, work);
  op.tag = tag.packed();
  ++next_id_;
  return op;
}

void TimedSource::wait_for_predecessors(const lower::FlatOp& op, engine::OpBlock& out) const {
  for (const std::uint32_t earlier : stream_.after_of(op)) out.add_after(ids_[earlier]);
}

void TimedSource::add_memory(const lower::FlatOp& op, engine::OpBlock& out) const {
  for (const graph::MemoryDelta& m : stream_.memory_of(op)) {
    const double scale = memory_scales_.empty() ? 1 : memory_scales_[static_cast<std::size_t>(m.owner)];
    out.add_memory({static_cast<std::uint16_t>(m.pool), static_cast<std::uint16_t>(m.owner), scale * m.bytes});
  }
}

void TimedSource::add_split_copy(std::uint32_t index, const CostTable::Entry& cost, engine::OpBlock& out) {
  const lower::FlatOp& op = stream_.ops[index];
  const auto thread = static_cast<std::uint16_t>(std::get<graph::Copy>(costs_.works()[op.work].work).issuer);
  const engine::WorkId work = engine_work(op.work, cost, out), calls = engine_calls(op.work, cost, out);
  const engine::OpId first_call = next_id_;
  add_op(thread, calls, {index, true}, out);
  wait_for_predecessors(op, out);
  ids_.push_back(next_id_);
  add_op(static_cast<std::uint16_t>(op.lane), work, {index, false}, out);
  out.add_after(first_call);
  add_memory(op, out);
  if (cost.issue.rest <= 0) return;
  add_op(thread, calls + 1, {index, true}, out);
  out.add_after(first_call);
}

void TimedSource::add(std::uint32_t index, engine::OpBlock& out) {
  const lower::FlatOp& op = stream_.ops[index];
  const CostTable::Entry& cost = costs_[op.work];
  if (cost.issued) return add_split_copy(index, cost, out);
  ids_.push_back(next_id_);
  add_op(static_cast<std::uint16_t>(op.lane), engine_work(op.work, cost, out), {index, false}, out);
  wait_for_predecessors(op, out);
  add_memory(op, out);
}

bool TimedSource::next_block(engine::OpBlock& out) {
  cancel_.check();
  out.clear();
  if (blocks_.size() == end_) return false;
  const std::uint32_t end = stream_.blocks[blocks_.size()].end;
  BlockIds ids;
  ids.first = next_id_;
  for (std::uint32_t op = stream_.begin_of(blocks_.size()); op < end; ++op) add(op, out);
  ids.last = next_id_ - 1;
  blocks_.push_back(ids);
  return true;
}

Recorder::Recorder(const TimedSource& source, std::size_t detailed_from)
    : source_(source), detailed_from_(detailed_from) {
  const lower::FlatStream& stream = source.stream();
  ends_.reserve(stream.blocks.size());
  // The calls that issue copies are not included.
  if (detailed_from < stream.blocks.size()) records_.reserve(stream.ops.size() - stream.begin_of(detailed_from));
}

void Recorder::finished(const engine::Record& record) {
  const auto& blocks = source_.blocks();
  if (ends_.size() < blocks.size() && record.id == blocks[ends_.size()].last) {
    ends_.push_back(record.finish);
    last_finishes_.push_back(record.finish);
  } else if (!ends_.empty() && record.id < blocks[ends_.size() - 1].last) {
    std::size_t block = ends_.size() - 1;
    while (record.id < blocks[block].first) --block;
    last_finishes_[block] = record.finish;  // ops are reported in order of finish
  }
  if (detailed_from_ < blocks.size() && record.id >= blocks[detailed_from_].first) records_.push_back(record);
}

std::vector<metrics::BusySpan> Recorder::spans(Picoseconds begin, Picoseconds end) const {
  std::vector<metrics::BusySpan> spans;
  for (const engine::Record& r : records_) {
    if (r.finish <= begin || r.start >= end || r.start == r.finish) continue;
    const OpNote n = source_.note(r.tag);
    if (n.kind == graph::Kind::kMarker) continue;
    spans.push_back({r.start, r.finish, n.kind, n.lane, n.bound, n.uncertainty, n.origin});
  }
  return spans;
}

engine::System make_system(const hardware::CostModel& costs) {
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
  system.owners = graph::owner_names();
  return system;
}

}  // namespace kvcast::simulate
