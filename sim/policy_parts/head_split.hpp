// Static head splits: some KV heads keep everything, the others a sink and a sliding window. The split is known before
// the prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "policy/policy.hpp"
#include "policy/profile.hpp"

namespace kvcast::policy {

// [layers × KV heads]: true if the head keeps everything.
using FullHeads = std::vector<std::vector<bool>>;

enum class HeadReduce { kMean, kMax };
// Scores of one kind by KV head, for all layers of the model: the mean or the maximum over the query heads of a group.
std::vector<std::vector<double>> kv_head_scores(const Profile& profile, const std::string& kind, HeadReduce reduce);
// The `n` best heads of all layers; ties go to the earlier layer, then to the earlier head.
FullHeads best_heads(const std::vector<std::vector<double>>& scores, std::int64_t n);
// Number of heads that keep everything, over all layers.
std::int64_t count_full(const FullHeads& full);

struct HeadSplit {
  std::shared_ptr<const Profile> profile;
  FullHeads full;
  std::int64_t sink = 0, recent = 0;  // of the other heads
  std::int64_t block = 0;             // prompt tokens between evictions; 0: one eviction after the prompt
  // Tokens that leave the window are replaced by one pair of means with the weight of all of them
  // (RazorAttention).
  bool compensate = false;
};
// `of_request` is called once for equal lengths.
std::unique_ptr<Policy> split_heads(std::function<HeadSplit(const Lengths&)> of_request);

}  // namespace kvcast::policy
