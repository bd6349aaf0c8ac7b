// Attention to entries that represent several tokens each (DeepSeek-V4; transformers' deepseek_v4). One head of keys,
// which are the values as well, serves all query heads. Every layer attends to its last `window` tokens; compressing
// layers attend to entries besides, in the same softmax: to those that an indexer finds best (compressed sparse
// attention, CSA), or to all of them (heavily compressed attention, HCA). A gate makes an entry of the tokens since the
// one before; in CSA also of as many before these.
#pragma once

#include <string>

#include "config/precision.hpp"
#include "config/section.hpp"

namespace kvcast::config {

struct Compressed {
  enum class Kind : char { kWindow = 'W', kSelecting = 'C', kAll = 'H' };
  std::string layers;                  // the kind of each
  int window = 0;                      // last tokens, which are attended to as they are
  int csa_tokens = 4;                  // from one entry to the next
  int hca_tokens = 128;                // the same in HCA
  int index_heads = 0, index_dim = 0;  // queries of the indexer, and the width of an entry's index key
  int index_best = 0;                  // entries that a query attends to
  bool index_fp4 = false;              // index keys of 4 bits rather than FP8
  int query_rank = 0;                  // width that queries are compressed to
  int rope_dim = 0;                    // dimensions of a key with positions, which keep 16 bits in any cache
  int output_groups = 0;               // of query heads, whose outputs are compressed to ...
  int output_rank = 0;                 // ... this width each

  Kind kind(int layer) const { return static_cast<Kind>(layers[static_cast<std::size_t>(layer)]); }
  int count(Kind kind, int of_layers) const;  // among the first layers
  int tokens(Kind kind) const { return kind == Kind::kSelecting ? csa_tokens : kind == Kind::kAll ? hca_tokens : 0; }
  // Times the width of a key that a token's row has in the compressor: 2 where windows overlap, 0 if there is none.
  static int halves(Kind kind) { return kind == Kind::kSelecting ? 2 : kind == Kind::kAll ? 1 : 0; }
  // Width of what the compressors of a layer project a token to: values and gates, of the index as well.
  double compressor_width(Kind kind, int head_dim) const;
  // Bytes of an entry or of a token of the window. FP8 has a scale of a byte per 64 numbers, padded to 8 bytes.
  double entry_bytes(int head_dim, CacheFormat cache) const;
  double index_bytes() const;  // of an entry's index key, with scales of 4 bytes
  // Bytes that the cache grows by with each token, mean over tokens; `index`: those of the index alone.
  double bytes_per_token(Kind kind, int head_dim, CacheFormat cache) const;
  double index_bytes_per_token(Kind kind) const;
  // Bytes of a sequence whatever its length: the window, and rows of tokens in single precision that are not yet
  // entries.
  double fixed_bytes(Kind kind, int head_dim, CacheFormat cache) const;
};

// Reads `compressed:` of a model of so many layers.
Compressed read_compressed(Section section, int layers);

}  // namespace kvcast::config
