// Ways in which the query heads that share a KV head agree on one selection.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.hpp"

namespace kvcast::policy {

enum class Group : std::uint8_t {
  kSumScores,  // sum, mean or maximum over the heads of the raw scores
  kMeanScores,
  kMaxScores,
  kSumWeights,  // the same for softmax weights, each head's over all units that compete
  kMeanWeights,
  kMaxWeights,
  kMeanQuery,  // one query: element-wise mean or maximum of the heads' queries
  kMaxQuery,
  kPerHead,  // no agreement: every query head selects separately
};

const std::vector<std::string>& group_names();
// `name` is one of group_names().
Group parse_group(std::string_view name);

// Returns whether a KV head's queries give one row of scores (a combined query) rather than one per query head.
inline bool combines_queries(Group group) { return group == Group::kMeanQuery || group == Group::kMaxQuery; }

// Cosine of a decode step's queries with those of the step before (step ≥ 1), mean over query heads first … first + n
// − 1.
double query_cosine(const trace::Layer& layer, int first, int n, int step);

// Combines the queries of `heads`, d floats each; group is kMeanQuery or kMaxQuery.
void combine_queries(Group group, std::span<const float* const> heads, std::size_t d, std::span<float> out);

// Returns whether the scores of a query head are weighed by a softmax over all units first.
constexpr bool by_weights(Group group) {
  return group == Group::kSumWeights || group == Group::kMeanWeights || group == Group::kMaxWeights;
}

// Reduces rows of raw scores (one per query head, each as long as `out`) to one row. Weights are softmax(scale ·
// score), computed in place; raw scores stay unscaled, which does not change their ranking. Not for kPerHead.
void reduce_group(Group group, std::span<const std::span<float>> rows, float scale, std::span<float> out);

}  // namespace kvcast::policy
