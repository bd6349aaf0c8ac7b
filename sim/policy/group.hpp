// How the query heads that share a KV head agree on one selection.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::policy {

enum class Group : std::uint8_t {
  kSumScores,  // Σ, mean, max over the heads of the raw scores
  kMeanScores,
  kMaxScores,
  kSumWeights,  // the same of softmax weights, each head's over all units that compete
  kMeanWeights,
  kMaxWeights,
  kMeanQuery,  // one query: element-wise mean or maximum of the heads' queries
  kMaxQuery,
  kPerHead,  // no agreement: every query head selects for itself
};

const std::vector<std::string>& group_names();
// name is one of group_names().
Group parse_group(std::string_view name);

// Rows of scores that a KV head's queries give: 1 for a combined query, else one a query head.
inline bool combines_queries(Group group) { return group == Group::kMeanQuery || group == Group::kMaxQuery; }

// The combined query of `heads` queries of d floats each; group is kMeanQuery or kMaxQuery.
void combine_queries(Group group, std::span<const float* const> heads, std::size_t d, std::span<float> out);

// Reduces rows of raw scores (one a query head, all as long as `out`) to one. Weights are softmax(scale · score) and
// are made in place; raw scores stay unscaled, which no ranking sees. Not for kPerHead.
void reduce_group(Group group, std::span<const std::span<float>> rows, float scale, std::span<float> out);

}  // namespace kvcast::policy
