#include "lower/flat.hpp"

#include <bit>
#include <type_traits>

#include "base/error.hpp"

namespace kvcast::lower {
namespace {

constexpr std::size_t kUsualBlock = 2048;  // ops of a decode step; reserved because growing a block copies them

// Multiplies and folds: sufficient for a hash table, at a few cycles per number.
class Hash {
 public:
  template <class... Numbers>
  std::uint64_t of(Numbers... numbers) {
    (mix(numbers), ...);
    return state_;
  }

 private:
  template <class Number>
  void mix(Number number) {
    std::uint64_t bits = 0;
    if constexpr (std::is_floating_point_v<Number>) {
      bits = std::bit_cast<std::uint64_t>(number + 0.0);  // both zeros are equal
    } else {
      bits = static_cast<std::uint64_t>(number);
    }
    state_ = (state_ ^ bits) * 0x9E3779B97F4A7C15ull;
    state_ ^= state_ >> 32;
  }
  std::uint64_t state_ = 0x243F6A8885A308D3ull;
};

struct HashOfWork {
  using Result = std::uint64_t;
  Result operator()(const graph::Marker&) const { return 0; }
  Result operator()(const graph::Gemm& w) const { return Hash().of(w.m, w.n, w.k, w.groups, w.weight_bytes); }
  Result operator()(const graph::DecodeAttention& w) const {
    return Hash().of(w.rows, w.group, w.tokens, w.longest, w.unit_bytes, w.kv_reads, w.score_bytes, w.warm);
  }
  Result operator()(const graph::PrefillAttention& w) const {
    return Hash().of(w.flops, w.read_bytes, w.write_bytes, w.kv_bytes, w.products);
  }
  Result operator()(const graph::Kernel& w) const {
    return Hash().of(w.cls, w.read_bytes, w.write_bytes, w.flops, w.unit_bytes, w.blocks, w.threads, w.per_sm,
                     w.passes);
  }
  Result operator()(const graph::TopK& w) const { return Hash().of(w.rows, w.columns, w.k, w.score_bytes, w.passes); }
  Result operator()(const graph::Copy& w) const {
    return Hash().of(w.direction, w.kind, w.runs, w.run_bytes, w.rows, w.issuer, w.in_turn);
  }
  Result operator()(const graph::Collective& w) const { return Hash().of(w.exchange, w.bytes, w.ranks); }
  Result operator()(const graph::HostWork& w) const { return Hash().of(w.call, w.count); }
  Result operator()(const graph::CpuWork& w) const {
    return Hash().of(w.items, w.bytes_per_item, w.flops_per_item, w.ranked_per_item, w.looked_up_per_item,
                     w.product_flops_per_item, w.threads, w.kept_per_item, w.places_per_item);
  }
};

}  // namespace

WorkId Works::add(const graph::Work& work, graph::Lane lane) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const std::uint64_t hash = Hash().of(std::visit(HashOfWork{}, work), work.index(), lane);
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] != kEmpty; slot = (slot + 1) & (slots_.size() - 1)) {
    const WorkId id = slots_[slot];
    if (hashes_[id] == hash && entries_[id].lane == lane && entries_[id].work == work) return id;
  }
  KVCAST_CHECK(entries_.size() < kEmpty);
  slots_[slot] = static_cast<WorkId>(entries_.size());
  entries_.push_back({work, lane, graph::traffic_of(work)});
  hashes_.push_back(hash);
  return slots_[slot];
}

void Works::grow() {
  slots_.assign(slots_.empty() ? 256 : 2 * slots_.size(), kEmpty);
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    std::size_t slot = hashes_[i] & (slots_.size() - 1);
    while (slots_[slot] != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<WorkId>(i);
  }
}

FlatStream flatten(graph::WorkSource& source, Works& works) {
  FlatStream flat;
  std::vector<graph::Op> block;
  block.reserve(kUsualBlock);
  while (source.next_block(block)) {
    FlatStream::Block& info = flat.blocks.emplace_back();
    for (const graph::Op& op : block) {
      FlatOp& made = flat.ops.emplace_back();
      made.label = op.label;
      made.work = works.add(op.work, op.lane);
      made.layer = op.layer, made.kind = op.kind, made.lane = op.lane;
      made.after_begin = static_cast<std::uint32_t>(flat.after.size());
      for (const graph::OpId id : op.after) flat.after.push_back(static_cast<std::uint32_t>(id));
      made.after_end = static_cast<std::uint32_t>(flat.after.size());
      made.memory_begin = static_cast<std::uint32_t>(flat.memory.size());
      flat.memory.insert(flat.memory.end(), op.memory.begin(), op.memory.end());
      made.memory_end = static_cast<std::uint32_t>(flat.memory.size());
      info.traffic += works[made.work].traffic;
    }
    KVCAST_CHECK(flat.ops.size() < 0x7FFFFFFFu && flat.after.size() < 0xFFFFFFFFu);
    info.end = static_cast<std::uint32_t>(flat.ops.size());
  }
  return flat;
}

}  // namespace kvcast::lower
