#include "policy/block_indexer.hpp"

#include "policy/costs.hpp"

namespace kvcast::policy {

OpId index_scores(const BlockIndexer& s, double kv_heads, double pairs, double tokens, LayerOps& ops, OpId after) {
  const auto stride = static_cast<double>(s.stride);
  PrefillAttention index;
  index.flops = 2 * pairs / stride * s.query_heads(kv_heads) * s.dim;
  index.read_bytes = tokens / stride * s.entry_bytes;
  index.write_bytes = pairs / static_cast<double>(s.block) * s.lists(kv_heads) * kScoreBytes;
  index.products = s.fp8 ? graph::Products::kFp8 : graph::Products::kHalf;
  return ops.compute(Kind::kScore, "index scores", index, {after});
}

OpId best_blocks(const BlockIndexer& s, double rows, double tokens, LayerOps& ops, OpId after) {
  const TopK best{rows, tokens / static_cast<double>(s.block), static_cast<double>(s.blocks()), kScoreBytes};
  return ops.compute(Kind::kTopK, "top-k", best, {after});
}

}  // namespace kvcast::policy
