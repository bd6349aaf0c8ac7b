// Scores of prompt tokens by the attention of the last prompt queries (SnapKV's observation window), and their pooling.
//
// Source: Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", 2024 (arXiv 2404.14469),
// section 4.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "policy/group.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// For each query head the sum over the window's rows of softmax(q·k / √d), each row over all keys up to its own
// position, for the prompt − window positions before the window.
struct WindowScores {
  int window = 0;
  std::vector<std::vector<float>> q_heads;
};

// Requires 1 ≤ window ≤ prompt_tokens. Throws UserError if the trace contains fewer of the last prompt queries.
WindowScores score_window(const trace::Layer& layer, int window);

// Moments of one query head, for each token before the window: sums of the same weights over the window's rows, and of
// their squares; − Σ a·log(a + 1e-10) over all these weights a.
struct WindowMoments {
  std::vector<double> sum, squares;
  double entropy = 0;
  // Unbiased variance over `rows` rows; 0 for a single row.
  double variance(std::size_t token, int rows) const;
};

// Reduces the scores of a KV head's group: sum, mean or maximum of the query heads' weights.
void reduce_window(const WindowScores& scores, int kv_head, int group_size, Group group, std::vector<float>& out);

enum class Pooling { kMax, kAverage };

// Pools with an odd kernel and stride 1; `out` is as long as `in`. The average counts zeros beyond the ends and always
// divides by the kernel; the maximum ignores positions beyond the ends.
void pool(Pooling kind, int kernel, std::span<const float> in, std::vector<float>& out);

}  // namespace kvcast::policy
