// A model on which bytes and FLOP can be worked out by hand.
#pragma once

#include "config/model.hpp"

namespace kvcast::tests {

// 4 query heads on 2 KV heads of 16 dimensions: a key of one head has 32 bytes, a pair of all heads in a layer 128.
inline config::Model tiny_model() {
  config::Model m;
  m.layers = 2, m.hidden = 64, m.ffn = 128, m.vocab = 1000;
  m.n_q_heads = 4, m.n_kv_heads = 2, m.head_dim = 16;
  return m;
}

}  // namespace kvcast::tests
