#include "policy/group.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/matrix.hpp"

namespace kvcast::policy {

const std::vector<std::string>& group_names() {
  static const std::vector<std::string> names = {"sum_scores",  "mean_scores",  "max_scores",
                                                 "sum_weights", "mean_weights", "max_weights",
                                                 "mean_query",  "max_query",    "per_head"};
  return names;
}

Group parse_group(std::string_view name) {
  const auto& names = group_names();
  const auto found = std::find(names.begin(), names.end(), name);
  KVCAST_CHECK(found != names.end());
  return static_cast<Group>(found - names.begin());
}

void combine_queries(Group group, std::span<const float* const> heads, std::size_t d, std::span<float> out) {
  KVCAST_CHECK(combines_queries(group) && !heads.empty() && out.size() == d);
  std::copy_n(heads[0], d, out.begin());
  for (const float* head : heads.subspan(1)) {
    for (std::size_t j = 0; j < d; ++j)
      out[j] = group == Group::kMaxQuery ? std::max(out[j], head[j]) : out[j] + head[j];
  }
  if (group == Group::kMeanQuery) {
    for (float& x : out) x /= static_cast<float>(heads.size());
  }
}

double query_cosine(const trace::Layer& layer, int first, int n, int step) {
  const auto d = static_cast<std::size_t>(layer.info().head_dim);
  double sum = 0;
  for (int head = first; head < first + n; ++head) {
    const float* const now = layer.decode_query(head, step);
    const float* const last = layer.decode_query(head, step - 1);
    const double norms = std::sqrt(static_cast<double>(dot(now, now, d)) * static_cast<double>(dot(last, last, d)));
    sum += norms > 0 ? static_cast<double>(dot(now, last, d)) / norms : 0;
  }
  return sum / n;
}

void reduce_group(Group group, std::span<const std::span<float>> rows, float scale, std::span<float> out) {
  KVCAST_CHECK(group != Group::kPerHead && !rows.empty());
  if (out.empty()) return;
  if (by_weights(group)) {
    for (const std::span<float> row : rows) softmax(row, scale);
  }
  const bool largest = group == Group::kMaxScores || group == Group::kMaxWeights;
  std::copy_n(rows[0].begin(), out.size(), out.begin());
  for (const std::span<float> row : rows.subspan(1)) {
    KVCAST_CHECK(row.size() == out.size());
    if (largest) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], row[i]);
    } else {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += row[i];
    }
  }
  if (group == Group::kMeanScores || group == Group::kMeanWeights) {
    for (float& x : out) x /= static_cast<float>(rows.size());
  }
}

}  // namespace kvcast::policy
