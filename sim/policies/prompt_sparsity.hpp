// Sparse attention over the prompt before any policy. MInference and XAttention compute part of the prompt's attention;
// the cache is complete when decoding starts, and `then` names the policy that handles it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "policy/costs.hpp"
#include "policy_parts/forwarded_policy.hpp"

namespace kvcast::policy {

// Adds sparse attention over the prompt to an inner policy.
class SparsePrompt : public WrappedPolicy {
 public:
  // Throws UserError (at `where`) if the inner policy reads the prompt in blocks (the pattern is that of a whole
  // prompt) or has a sparse pattern of its own.
  SparsePrompt(std::unique_ptr<Policy> inner, const SourceLocation& where);

  void check(const Lengths& request) const override;
  bool covers(const Lengths&) const override { return false; }  // the prompt is sparse
  bool selects() const override { return inner_->selects(); }

 private:
  SourceLocation where_;
};

// The reason why a replay over given keys and values does not show such a policy's loss.
inline constexpr const char* kSparsePromptUnseen =
    "keys and values of a replay are those of full attention over the prompt, without the effect of sparse attention "
    "on them";

// Declares the parameter `then`, and makes the policy that it names.
Parameter then_parameter();
std::unique_ptr<Policy> read_then(const ParameterValues& values);

// Causal pairs of a prompt: a query sees all keys up to its own.
double causal_pairs(std::int64_t tokens);

// Share of the softmax mass that a query head keeps: mean over at most 128 captured prompt queries, one from each of as
// many equal parts of the last contiguous ones. keeps(i, j) returns whether query i sees key j ≤ i.
using Keeps = std::function<bool(std::int64_t query, std::int64_t key)>;
double prompt_recall(const trace::Layer& layer, int q_head, const Keeps& keeps);

// Softmax weights of the last queries, `rows` over all heads and sequences, and their sums by column and by diagonal
// for each of `heads` heads of all sequences.
OpId sum_last_queries(const Dims& m, double heads, double rows, double keys, LayerOps& ops);

// Attention over the remaining pairs, once the pattern is known.
OpId sparse_attention(const PrefillChunk& chunk, LayerOps& ops, OpId after);

}  // namespace kvcast::policy
