// Keys rebuilt from a low-rank factor of what they were before rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

#include "base/matrix.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// The keys of all KV heads side by side, [tokens × n_kv·d], before RoPE, are replaced by their best approximation of
// rank `rank` (singular value decomposition), and turned to their positions again.
class LowRankKeys {
 public:
  // Of positions 0 … tokens − 1, tokens ≥ 1; a rank of n_kv·d and more rebuilds all of them up to rounding.
  LowRankKeys(const trace::Layer& layer, std::int64_t tokens, std::int64_t rank);
  // [tokens × d] of a KV head.
  MatrixView head(int kv_head) const;

 private:
  std::size_t tokens_, d_;
  std::vector<float> keys_;  // [n_kv × tokens × d]
};

}  // namespace kvcast::policy
