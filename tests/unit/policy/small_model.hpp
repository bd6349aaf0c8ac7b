// A model small enough to count the work of its layers by hand.
#pragma once

#include <variant>

#include "config/model.hpp"
#include "graph/op.hpp"

namespace kvcast::tests {

// 4 query heads on 2 KV heads of 8 dimensions, 3 layers: a key of one head has 8·2 = 16 bytes.
inline config::Model small_model() {
  config::Model m;
  m.layers = 3, m.n_q_heads = 4, m.n_kv_heads = 2, m.head_dim = 8;
  return m;
}

inline const graph::Kernel& kernel(const graph::Op& op) { return std::get<graph::Kernel>(op.work); }
inline const graph::Copy& copy(const graph::Op& op) { return std::get<graph::Copy>(op.work); }

}  // namespace kvcast::tests
