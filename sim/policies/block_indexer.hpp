// Learned selectors of blocks: an indexer with queries and keys of its own scores the cache, and attention reads the
// best blocks. One descriptor covers DeepSeek sparse attention, MiniMax sparse attention and Qwen sparse attention.
#pragma once

#include <memory>

#include "policy/policy.hpp"

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
  // The last block is always read: within the budget, or, if it is not full, in addition to it and without an entry.
  bool last_inside = false, tail_beside = false;
  // Layers `share_after`, `share_after` + `share`, … have an indexer, as do those before the first of them; the others
  // use the selection of the layer before.
  std::int64_t share = 1, share_after = 0;
  std::int64_t buffer = 0;  // tokens on the GPU, all others in host memory; 0: all

  std::int64_t blocks() const { return budget / block; }  // that are chosen
  bool indexes(int layer) const { return layer < share_after || (layer - share_after) % share == 0; }
};

std::unique_ptr<Policy> index_blocks(const BlockIndexer& indexer);

}  // namespace kvcast::policy
