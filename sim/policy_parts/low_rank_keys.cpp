// With V the leading eigenvectors of KᵀK (the right singular vectors of K), K·V·Vᵀ is the best approximation of that
// rank (Eckart and Young, 1936). KᵀK has n_kv·d columns whatever the length of the prompt.
#include "policy_parts/low_rank_keys.hpp"

#include <algorithm>

#include "policy_parts/pre_rope.hpp"
#include "policy_parts/spectrum.hpp"
#include "trace/rope.hpp"

namespace kvcast::policy {

LowRankKeys::LowRankKeys(const trace::Layer& layer, std::int64_t tokens, std::int64_t rank)
    : tokens_(static_cast<std::size_t>(tokens)), d_(static_cast<std::size_t>(layer.info().head_dim)) {
  const auto heads = static_cast<std::size_t>(layer.info().n_kv_heads);
  const std::size_t width = heads * d_, r = std::min(width, static_cast<std::size_t>(rank));
  std::vector<float> factor(tokens_ * r), directions;
  {
    std::vector<float> joint(tokens_ * width);
    for (std::size_t h = 0; h < heads; ++h) {
      const std::vector<float> keys = keys_before_rope(layer, static_cast<int>(h), tokens);
      for (std::size_t i = 0; i < tokens_; ++i) {
        std::copy_n(keys.data() + i * d_, d_, joint.data() + i * width + h * d_);
      }
    }
    const MatrixView all{joint.data(), tokens_, width, width};
    directions = leading_directions(second_moments(all, false), width, r);
    multiply_transposed(all, {directions.data(), r, width, width}, factor.data(), r, layer.cancel());
  }
  keys_.resize(heads * tokens_ * d_);
  trace::RotationTable table(trace_frequencies(layer.info()));
  for (std::size_t h = 0; h < heads; ++h) {
    float* const out = keys_.data() + h * tokens_ * d_;
    multiply({factor.data(), tokens_, r, r}, {directions.data() + h * d_, r, d_, width}, out, d_);
    for (std::size_t first = 0; first < tokens_; first += trace::RotationTable::kBlock) {
      const std::size_t n = std::min<std::size_t>(trace::RotationTable::kBlock, tokens_ - first);
      table.fill(static_cast<std::int64_t>(first), static_cast<int>(n));
      for (std::size_t i = 0; i < n; ++i) table.rotate(static_cast<int>(i), out + (first + i) * d_);
    }
  }
}

MatrixView LowRankKeys::head(int kv_head) const { return {keys_.data() + kv_head * tokens_ * d_, tokens_, d_, d_}; }

}  // namespace kvcast::policy
