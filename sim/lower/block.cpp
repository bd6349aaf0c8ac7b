#include "lower/block.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "lower/eager.hpp"
#include "lower/operators.hpp"
#include "lower/torch_topk.hpp"

namespace kvcast::lower {
namespace {

// Attention kernels of serving systems were measured on paged caches. From pages of this many tokens on, the length of
// a page hardly matters (FlashInfer's blog), and its effect is part of the measurements.
constexpr int kPageOfFits = 16;
constexpr double kConvertFlops = 2;  // FLOP to convert a cached number and multiply it by its scale

double pair_bytes(const graph::DecodeAttention& work) { return 2 * work.tokens * work.head_dim * work.element_bytes; }

// The same attention over unquantised numbers.
graph::DecodeAttention in_half(graph::DecodeAttention work) {
  work.unit_bytes *= config::Model::kElementBytes / work.element_bytes;
  work.element_bytes = config::Model::kElementBytes;
  work.converted = 0, work.fp8 = false;
  return work;
}

}  // namespace

using graph::HostCall;
using graph::Kind;
using graph::Lane;
using graph::OpId;

void Events::note(std::string_view event, int layer, OpId op) {
  auto found = std::ranges::find_if(events_, [&](const Event& e) { return e.name == event; });
  if (found == events_.end()) found = events_.insert(events_.end(), {std::string(event), {}});
  const auto at = static_cast<std::size_t>(layer + 1);
  if (found->by_layer.size() <= at) found->by_layer.resize(at + 1, -1);
  found->by_layer[at] = op;
}

OpId Events::noted(std::string_view event, int layer) const {
  const auto at = static_cast<std::size_t>(layer + 1);
  for (const Event& e : events_) {
    if (e.name == event) return at < e.by_layer.size() ? e.by_layer[at] : -1;
  }
  return -1;
}

LoweredBlock::LoweredBlock(const config::Framework& framework, OpId first, OpId gate, Events& events,
                           std::vector<graph::Op>& out)
    : framework_(framework), first_(first), next_(first), gate_(gate), events_(events), out_(out) {}

OpId LoweredBlock::add(Kind kind, Lane lane, const char* label, const graph::Work& work, After after) {
  graph::Op& op = out_.emplace_back();
  op.kind = kind;
  op.lane = lane;
  op.layer = static_cast<std::int16_t>(layer_);
  op.work = work;
  op.label = label;
  for (const OpId id : after) {
    if (id >= 0) op.after.push_back(id);
  }
  // The first op of a lane in this block must wait for the gate; lane order delays the later ones.
  bool& used = lane_used_[static_cast<std::size_t>(lane)];
  if (!used && gate_ >= 0) op.after.push_back(gate_);
  used = true;
  return next_++;
}

void LoweredBlock::enter_layer(int layer) {
  layer_ = layer;
  done_ = -1;
  if (framework_.launch == config::Framework::Launch::kEager && layer >= 0) {
    add(Kind::kLaunch, Lane::kHost, "layer overhead", graph::HostWork{HostCall::kEagerLayer, 1}, {});
    if (framework_.engine_layer.value > 0) {
      add(Kind::kLaunch, Lane::kHost, "layer's Python", graph::HostWork{HostCall::kEngineLayer, 1}, {});
    }
  }
}

void LoweredBlock::plan_attention() {
  if (framework_.attention_plan.value <= 0) return;
  add(Kind::kLaunch, Lane::kHost, "plan attention", graph::HostWork{HostCall::kPlanAttention, 1}, {});
}

OpId LoweredBlock::taken_done() {
  KVCAST_CHECK(done_ >= 0);
  return std::exchange(done_, -1);
}

OpId LoweredBlock::launch(Lane lane, bool inside) {
  const auto one = [&](Lane thread, HostCall call, const char* label) {
    return add(Kind::kLaunch, thread, label, graph::HostWork{call, 1}, {});
  };
  switch (lane) {
    case Lane::kBackup:
      return one(Lane::kBackupThread, HostCall::kLaunch, "launch");
    case Lane::kSelect:
    case Lane::kCopyA:
    case Lane::kCopyB:
      return one(Lane::kRecallThread, HostCall::kLaunch, "launch");
    default:
      break;
  }
  switch (framework_.launch) {
    case config::Framework::Launch::kEager:
      return inside ? one(Lane::kHost, HostCall::kLaunch, "launch") : one(Lane::kHost, HostCall::kEagerOp, "operator");
    case config::Framework::Launch::kCompiled:
      return one(Lane::kHost, HostCall::kLaunch, "launch");
    case config::Framework::Launch::kCudaGraph:
      break;
  }
  if (graph_launch_ < 0) {
    graph_launch_ = one(Lane::kHost, HostCall::kGraphLaunch, "graph launch");
    return graph_launch_;
  }
  // The rest of the stretch follows in lane order; the graph launch grows by one node.
  std::get<graph::HostWork>(out_[graph_launch_ - first_].work).count += 1;
  return -1;
}

// One kernel attends to the prompts of all sequences, whatever their lengths.
bool LoweredBlock::joins_last(const char* label, const graph::Work& work) {
  const auto* const more = std::get_if<graph::PrefillAttention>(&work);
  if (more == nullptr || out_.empty() || next_ == first_) return false;
  graph::Op& last = out_.back();
  auto* const there = std::get_if<graph::PrefillAttention>(&last.work);
  if (there == nullptr || last.label != label || last.layer != layer_ || there->products != more->products)
    return false;
  there->flops += more->flops, there->kv_bytes += more->kv_bytes;
  there->read_bytes += more->read_bytes, there->write_bytes += more->write_bytes;
  return true;
}

OpId LoweredBlock::kernel(Lane lane, Kind kind, const char* label, const graph::Work& work, After after) {
  if (joins_last(label, work)) return last();
  const auto* const selection = std::get_if<graph::TopK>(&work);
  if (selection == nullptr || lane != Lane::kCompute || framework_.selection_operators == 0)
    return as_written(lane, kind, label, work, after);
  const double scores = selection->rows * selection->columns * selection->score_bytes;
  const graph::Kernel further{graph::KernelClass::kElementwise, scores, scores};
  OpId op = join(lane, after);
  for (int i = framework_.selection_operators; i > 0; --i)
    op = one_kernel(lane, kind, "operator around top-k", further, {op});
  return as_written(lane, kind, label, work, {op});
}

OpId LoweredBlock::as_written(Lane lane, Kind kind, const char* label, const graph::Work& work, After after) {
  const bool unfused = framework_.unfused && lane == Lane::kCompute;
  const graph::Kernel* const first = std::get_if<graph::Kernel>(&work);
  if (unfused && first != nullptr && label == kGroupSoftmax) {
    return unfused_group_softmax(*this, kind, *first, join(lane, after));
  }
  const auto* const selection = std::get_if<graph::TopK>(&work);
  const bool by_torch = framework_.torch_topk && selection != nullptr && lane == Lane::kCompute;
  OpId op = by_torch ? selected_by_torch(kind, label, *selection, join(lane, after))
                     : one_kernel(lane, kind, label, work, after);
  if (!unfused) return op;
  // Further operators read and write the output of the first one.
  double bytes = first != nullptr ? first->write_bytes : 0;
  if (selection != nullptr) bytes = selection->rows * selection->k * kTorchIndex;
  for (int i = further_operators(label); i > 0; --i) {
    op = one_kernel(lane, kind, label, graph::Kernel{graph::KernelClass::kElementwise, bytes, bytes}, {op});
  }
  return op;
}

OpId LoweredBlock::selected_by_torch(Kind kind, const char* label, const graph::TopK& work, OpId after) {
  bool inside = false;
  for (const graph::Work& part : torch_topk(work)) {
    after = one_kernel(Lane::kCompute, kind, label, part, {after}, inside);
    inside = true;
  }
  return after;
}

OpId LoweredBlock::one_kernel(Lane lane, Kind kind, const char* label, const graph::Work& work, After after,
                              bool inside) {
  const OpId launched = launch(lane, inside);
  const OpId op = add(kind, lane, label, work, after);
  if (launched >= 0) out_.back().after.push_back(launched);
  return op;
}

OpId LoweredBlock::host(Lane thread, Kind kind, const char* label, HostCall call, double count, After after) {
  const OpId op = add(kind, thread, label, graph::HostWork{call, count}, after);
  // A result read by the host may change the work that follows, so the captured graph ends here.
  if (thread == Lane::kHost && (call == HostCall::kStreamSync || call == HostCall::kItemSync)) graph_launch_ = -1;
  return op;
}

OpId LoweredBlock::copy(Lane lane, const char* label, const graph::Copy& copy, After after) {
  const Kind kind = copy.direction == graph::Direction::kHostToDevice ? Kind::kCopyIn : Kind::kCopyOut;
  return add(kind, lane, label, copy, after);
}

OpId LoweredBlock::cpu(const char* label, const graph::CpuWork& work, After after) {
  if (!framework_.unfused) return add(Kind::kCpuWork, Lane::kCpu, label, work, after);
  const std::vector<graph::CpuWork> operators = cpu_operators(label, work);
  OpId op = add(Kind::kCpuWork, Lane::kCpu, label, operators.front(), after);
  for (std::size_t i = 1; i < operators.size(); ++i) op = add(Kind::kCpuWork, Lane::kCpu, label, operators[i], {op});
  return op;
}

OpId LoweredBlock::join(Lane lane, After after) { return add(Kind::kMarker, lane, "join", graph::Marker{}, after); }

OpId LoweredBlock::join_all(OpId first, OpId last, OpId also) {
  OpId ends[graph::kLaneCount];
  std::fill(std::begin(ends), std::end(ends), OpId{-1});
  for (OpId id = first; id <= last; ++id) {
    ends[static_cast<std::size_t>(out_[static_cast<std::size_t>(id - first_)].lane)] = id;
  }
  const OpId op = add(Kind::kMarker, Lane::kBackupThread, "join", graph::Marker{}, {also});
  for (const OpId end : ends) {
    if (end >= 0) out_.back().after.push_back(end);
  }
  return op;
}

OpId LoweredBlock::between_steps(double sequences, bool of_policy, OpId after) {
  const auto add_host = [&](const Value& seconds, const char* label, HostCall call, double count) {
    if (seconds.value > 0) after = host(Lane::kHost, Kind::kLaunch, label, call, count, {after});
  };
  add_host(framework_.engine_step, "engine between steps", HostCall::kEngineStep, 1);
  add_host(framework_.engine_sequence, "engine for each sequence", HostCall::kEngineSequence, sequences);
  if (of_policy) add_host(framework_.policy_step, "policy between steps", HostCall::kPolicyStep, 1);
  return after;
}

OpId LoweredBlock::attention(const graph::DecodeAttention& work, After after) {
  if (framework_.unpack_operators > 0 && work.converted > 0) return attention(in_half(work), {unpack(work, after)});
  // Libraries' kernels do not return the weights that a policy sums.
  const bool by_operators = framework_.eager_attention || (framework_.unfused && work.score_bytes > 0);
  if (!framework_.concatenate_cache && !by_operators) return fused_attention(work, after);
  double pairs = pair_bytes(work);
  OpId op = join(Lane::kCompute, after);
  if (framework_.concatenate_cache) {
    const graph::Kernel copied{graph::KernelClass::kConcatenate, pairs / 2, pairs / 2};
    op = compute(Kind::kIndex, "concatenate keys", copied, {op});
    op = compute(Kind::kIndex, "concatenate values", copied, {op});
  }
  if (!by_operators) return fused_attention(work, {op});
  if (work.unpack_flops > 0 || work.converted > 0) {  // operators multiply unquantised numbers
    const double plain = 2 * work.tokens * work.head_dim * config::Model::kElementBytes;
    op = kernel(
        Lane::kCompute, Kind::kAttention, "unpack pairs",
        graph::Kernel{graph::KernelClass::kConvert, pairs, plain, work.unpack_flops + kConvertFlops * work.converted},
        {op});
    pairs = plain;
  }
  const double q_bytes = work.rows * work.group * work.head_dim * config::Model::kElementBytes;
  return eager_attention(*this, {work.tokens * work.group, pairs, q_bytes, work.group, work.head_dim, true}, op);
}

OpId LoweredBlock::unpack(const graph::DecodeAttention& work, After after) {
  const double bytes = pair_bytes(in_half(work));
  OpId op = compute(
      Kind::kAttention, "unpack cache",
      graph::Kernel{graph::KernelClass::kConvert, pair_bytes(work), bytes, kConvertFlops * work.converted}, after);
  for (int i = 1; i < framework_.unpack_operators; ++i) {
    const graph::Kernel further{graph::KernelClass::kElementwise, bytes, bytes};
    op = compute(Kind::kAttention, "unpack cache", further, {op});
  }
  return op;
}

OpId LoweredBlock::fused_attention(const graph::DecodeAttention& work, After after) {
  graph::DecodeAttention scaled = work;
  if (framework_.page > 0 && framework_.page < kPageOfFits && work.unit_bytes == 0) {
    scaled.unit_bytes = framework_.page * work.head_dim * work.element_bytes;
  }
  if (framework_.reread_kv_heads) scaled.kv_reads = std::max(work.kv_reads, work.group);
  scaled.separate_heads = work.separate_heads || (framework_.separate_query_heads && work.group > 1);
  scaled.beside_prompts = beside_prompts_;
  scaled.converted *= scaled.separate_heads ? work.group : scaled.kv_reads, scaled.fp8 = work.fp8 && multiplies_fp8();
  if (!framework_.expand_kv_heads || work.group <= 1) {
    return compute(Kind::kAttention, "attention", scaled, after);
  }
  // repeat_kv copies keys and values to all query heads, and the kernel sees one KV head per query head.
  const double half = work.tokens * work.head_dim * work.element_bytes;
  const graph::Kernel repeated{.cls = graph::KernelClass::kConcatenate,
                               .read_bytes = half,
                               .write_bytes = half * work.group,
                               .unit_bytes = work.unit_bytes};
  OpId op = compute(Kind::kAttention, "repeat keys", repeated, after);
  op = compute(Kind::kAttention, "repeat values", repeated, {op});
  scaled.rows *= work.group, scaled.tokens *= work.group, scaled.converted *= work.group;
  scaled.group = 1, scaled.unit_bytes = 0;
  return compute(Kind::kAttention, "attention", scaled, {op});
}

void LoweredBlock::note(std::string_view event, OpId op) { events_.note(event, layer_, op); }

OpId LoweredBlock::noted(std::string_view event) const { return events_.noted(event, layer_); }

void LoweredBlock::memory(OpId op, graph::Pool pool, graph::Owner owner, double bytes) {
  KVCAST_CHECK(op >= first_ && op < next_);
  if (bytes != 0) out_[op - first_].memory.push_back({pool, owner, bytes});
}

}  // namespace kvcast::lower
