// Learned selectors of blocks: an indexer with queries and keys of its own scores the cache, and attention reads the
// best blocks. One descriptor covers DeepSeek sparse attention, MiniMax sparse attention, Qwen sparse attention, and
// the entries of compressed sparse attention (config::Compressed).
#pragma once

#include <cstdint>

#include "policy/layer_ops.hpp"

namespace kvcast::policy {

struct BlockIndexer {
  std::int64_t budget = 2048;  // tokens
  std::int64_t block = 1;      // tokens that are chosen together
  std::int64_t stride = 1;     // tokens of an entry of the index
  double heads = 64, dim = 128;
  double entry_bytes = 132;  // of an entry, its scale included
  bool fp8 = true;           // products of the indexer
  bool by_group = false;     // each KV head chooses with one query head of the indexer, rather than the layer with all
  bool weights = true;       // each query head of the indexer has a weight, computed from the hidden state
  bool maximum = false;      // a block has the largest of its tokens' scores, rather than their mean
  bool tail_beside = false;  // the last block, if it is not full, is read in addition to the budget, without an entry
  std::int64_t sink = 0, recent = 0;  // first and last tokens, whose blocks are always read, within the budget
  // Layers `share_after`, `share_after` + `share`, … have an indexer, as do those before the first of them; the others
  // use the selection of the layer before.
  std::int64_t share = 1, share_after = 0;
  std::int64_t buffer = 0;  // tokens on the GPU, all others in host memory; 0: all

  std::int64_t blocks() const { return budget / block; }  // that are chosen
  double lists(double kv_heads) const { return by_group ? kv_heads : 1; }
  double query_heads(double kv_heads) const { return by_group ? kv_heads : heads; }
  bool indexes(int layer) const { return layer < share_after || (layer - share_after) % share == 0; }
};

// The products of all index heads with the entries, on tensor cores; a score for each block and list is written. pairs:
// queries times tokens; tokens: behind the entries that are read.
OpId index_scores(const BlockIndexer& indexer, double kv_heads, double pairs, double tokens, LayerOps& ops, OpId after);
// The best blocks of each of `rows` lists over so many tokens.
OpId best_blocks(const BlockIndexer& indexer, double rows, double tokens, LayerOps& ops, OpId after);

}  // namespace kvcast::policy
