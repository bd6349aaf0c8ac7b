// Equality of lowered work, entry by entry.
#include <algorithm>
#include <tuple>

#include "simulate/lowered.hpp"

namespace kvcast::simulate {
namespace {

auto key(const graph::Traffic& t) {
  return std::tie(t.hbm_read, t.hbm_write, t.h2d, t.d2h, t.cpu_dram, t.kv_read, t.h2d_pieces);
}
auto key(const graph::MemoryDelta& m) { return std::tie(m.pool, m.owner, m.bytes); }
auto key(const lower::FlatOp& op) {  // labels are static strings
  return std::tie(op.label, op.work, op.after_begin, op.after_end, op.memory_begin, op.memory_end, op.layer, op.kind,
                  op.lane);
}

template <class T>
bool same_entries(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) { return key(x) == key(y); });
}

bool same(const lower::Works& a, const lower::Works& b) {
  if (a.size() != b.size()) return false;
  for (lower::WorkId i = 0; i < a.size(); ++i) {
    if (!(a[i] == b[i]) || key(a[i].traffic) != key(b[i].traffic)) return false;
  }
  return true;
}

bool same(const lower::FlatStream& a, const lower::FlatStream& b) {
  const auto same_block = [](const auto& x, const auto& y) {
    return x.end == y.end && key(x.traffic) == key(y.traffic);
  };
  return a.after == b.after && same_entries(a.ops, b.ops) && same_entries(a.memory, b.memory) &&
         std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(), same_block);
}

bool same(const std::vector<DecodeSteps>& a, const std::vector<DecodeSteps>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const DecodeSteps& x, const DecodeSteps& y) {
    return x.held == y.held && x.warmup == y.warmup && x.weight == y.weight && same(x.stream, y.stream);
  });
}

}  // namespace

bool same_work(const Lowered& a, const Lowered& b) {
  return a.batch == b.batch && a.replayed_layers == b.replayed_layers && a.middle == b.middle &&
         a.owners.names() == b.owners.names() && same(a.works, b.works) && same(a.contexts, b.contexts) &&
         same(a.parts, b.parts) && a.prompt_groups == b.prompt_groups &&
         a.prefill.has_value() == b.prefill.has_value() && (!a.prefill || same(*a.prefill, *b.prefill));
}

}  // namespace kvcast::simulate
