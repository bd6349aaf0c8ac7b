// Static head splits: some KV heads keep everything, the others a sink and a sliding window; who is which is known
// before the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/policy.hpp"
#include "policy/profile.hpp"

namespace kvcast::policy {

// [layers × KV heads]: does the head keep everything?
using FullHeads = std::vector<std::vector<bool>>;

enum class HeadReduce { kMean, kMax };
// Scores of one kind by KV head, all layers of the model: the mean or the largest of each group's query heads.
std::vector<std::vector<double>> kv_head_scores(const Profile& profile, const std::string& kind, HeadReduce reduce);
// The `n` best of all heads of all layers; of equals the earlier layer, then the earlier head.
FullHeads best_heads(const std::vector<std::vector<double>>& scores, std::int64_t n);
// Heads that keep everything, all layers.
std::int64_t count_full(const FullHeads& full);

struct HeadSplit {
  std::shared_ptr<const Profile> profile;
  FullHeads full;
  std::int64_t sink = 0, recent = 0;  // of the other heads
  std::int64_t block = 0;             // of the prompt, after which they evict; 0: after all of it
  // What leaves the window goes into one pair of means that weighs as much as all it stands for (RazorAttention).
  bool compensate = false;
};
std::unique_ptr<Policy> split_heads(HeadSplit split);

}  // namespace kvcast::policy
