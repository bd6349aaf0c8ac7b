// Attention operator by operator, with scores in memory, for models that cannot use a fused kernel, such as those under
// policies that need attention weights of the whole prompt.
#pragma once

#include "lower/block.hpp"

namespace kvcast::lower {

// Totals over sequences and heads.
struct EagerAttention {
  double scores = 0;    // query-key pairs, masked ones included: eager kernels compute them all
  double kv_bytes = 0;  // keys and values as cached
  double q_bytes = 0;   // queries; outputs have the same size
  double group = 1;     // query heads per KV head: keys and values are repeated for each
  double head_dim = 128;
  bool of_step = false;  // of a decode step, whose products read the cache
};

// Adds transformers' eager_attention_forward in bfloat16 after `after`: repeat_kv, QKᵀ, scaling, mask, conversion,
// softmax in single precision, conversion back, product with V. Returns the last op.
graph::OpId eager_attention(LoweredBlock& block, const EagerAttention& work, graph::OpId after);

// Bytes of scores in memory at once, during the softmax: as masked, converted to single precision, and its result.
double eager_score_bytes(const EagerAttention& work);

}  // namespace kvcast::lower
