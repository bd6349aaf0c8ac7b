// Keys reconstructed from a low-rank factor of the keys before rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

#include "base/matrix.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// Replaces the keys of all KV heads side by side, [tokens × n_kv·d], before RoPE, by their best approximation of rank
// `rank` (singular value decomposition), and rotates them to their positions again.
class LowRankKeys {
 public:
  // Reconstructs positions 0 … tokens − 1, tokens ≥ 1. A rank of n_kv·d or more reconstructs them up to rounding.
  LowRankKeys(const trace::Layer& layer, std::int64_t tokens, std::int64_t rank);
  // Keys of a KV head, [tokens × d].
  MatrixView head(int kv_head) const;

 private:
  std::size_t tokens_, d_;
  std::vector<float> keys_;  // [n_kv × tokens × d]
};

}  // namespace kvcast::policy
