#include "policy/prompt_sparsity.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "policy/composition.hpp"
#include "policy/costs.hpp"
#include "policy/weights.hpp"

namespace kvcast::policy {

SparsePrompt::SparsePrompt(std::unique_ptr<Policy> inner, const SourceLocation& where) : inner_(std::move(inner)) {
  if (inner_->prompt_blocks({}, 0).tokens == 0) return;
  throw UserError(where, "then: a policy that reads the prompt in blocks has no whole prompt for a sparse pattern");
}

Parameter then_parameter() { return policy_parameter("then", "full", "what becomes of the cache after the prompt"); }

std::unique_ptr<Policy> read_then(const ParameterValues& values, const Lengths& lengths) {
  return read_policy(values, "then", lengths);
}

double causal_pairs(std::int64_t tokens) { return static_cast<double>(tokens) * (static_cast<double>(tokens) + 1) / 2; }

double prompt_recall(const trace::Layer& layer, int q_head, const Keeps& keeps) {
  constexpr std::int64_t kRows = 32;
  const trace::TraceInfo& info = layer.info();
  const std::int64_t there = std::min(info.longest_window(), info.prompt_tokens), rows = std::min(kRows, there);
  Held all(static_cast<std::size_t>(info.prompt_tokens));
  std::iota(all.begin(), all.end(), 0);
  double sum = 0;
  for (std::int64_t r = 1; r <= rows; ++r) {
    const std::int64_t i = info.prompt_tokens - there + r * there / rows - 1;
    visit_prompt_rows(layer, q_head, i, i + 1, all, [&](std::int64_t, std::span<const float> weights) {
      for (std::size_t j = 0; j < weights.size(); ++j) {
        if (keeps(i, static_cast<std::int64_t>(j))) sum += static_cast<double>(weights[j]);
      }
    });
  }
  return rows > 0 ? sum / static_cast<double>(rows) : 1;
}

graph::OpId sparse_attention(const PrefillChunk& chunk, LayerOps& ops, graph::OpId after) {
  return ops.kernel(graph::Lane::kCompute, graph::Kind::kAttention, "sparse prefill attention", causal_attention(chunk),
                    {after});
}

}  // namespace kvcast::policy
