#include "lower/verification.hpp"

namespace kvcast::lower {

using graph::OpId;

// Selection states its scores for all queries. They read the index once if they are packed; otherwise, and for scores
// of what is kept, a kernel reads and writes as often as there are queries.
OpId Verification::kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work, After after) {
  if (kind != graph::Kind::kScore || queries_ == 1) return ForwardedOps::kernel(lane, kind, label, work, after);
  graph::Work changed = work;
  const auto change = [&](auto& of) {
    if (selects_) {
      if (packed_) of.read_bytes /= queries_;
    } else {
      of.read_bytes *= queries_, of.write_bytes *= queries_, of.flops *= queries_;
    }
  };
  if (auto* const scores = std::get_if<graph::Kernel>(&changed)) change(*scores);
  if (auto* const products = std::get_if<graph::PrefillAttention>(&changed)) change(*products);
  return ForwardedOps::kernel(lane, kind, label, changed, after);
}

OpId Verification::attention(const graph::DecodeAttention& work, After after) {
  graph::DecodeAttention all = work;
  if (!selects_ && packed_ && work.serial_tiles == 0) {
    all.group *= queries_, all.score_bytes *= queries_;
  } else if (!selects_) {
    all.rows *= queries_, all.tokens *= queries_, all.score_bytes *= queries_;
    all.converted *= queries_, all.unpack_flops *= queries_;
  }
  return ForwardedOps::attention(all, after);
}

}  // namespace kvcast::lower
