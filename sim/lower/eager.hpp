// Attention operator by operator, its scores in memory: what models run that cannot use a fused kernel, as policies
// that need attention weights of the whole prompt.
#pragma once

#include "lower/block.hpp"

namespace kvcast::lower {

// Totals over sequences and heads.
struct EagerAttention {
  double scores = 0;    // query-key pairs, masked ones included: eager kernels compute them all
  double kv_bytes = 0;  // keys and values as cached
  double q_bytes = 0;   // queries; outputs are as many
  double group = 1;     // query heads a KV head: keys and values are repeated for each
  double head_dim = 128;
};

// The pairs' products by `after`, then transformers' eager_attention_forward: repeat_kv, QKᵀ, scaling, mask, softmax in
// single precision, conversion back, product with V. The last op.
graph::OpId eager_attention(Block& block, const EagerAttention& work, graph::OpId after);

// Bytes of scores that lie in memory at once: half precision in, single precision out of the softmax, and its result.
double eager_score_bytes(const EagerAttention& work);

}  // namespace kvcast::lower
