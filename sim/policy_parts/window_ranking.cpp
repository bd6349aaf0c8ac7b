#include "policy_parts/window_ranking.hpp"

#include <algorithm>

#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {

std::vector<std::vector<float>> ranked_by_window(const LayerInput& layer, const PromptEviction& s) {
  const auto rows = layer.window_scores(s.window);
  std::vector<std::vector<float>> all;
  std::vector<float> reduced;
  float largest = 0;
  for (int h = 0; h < layer.info().n_kv_heads; ++h) {
    reduce_window(*rows, h, layer.info().group(), s.group, reduced);
    for (float& x : reduced) x /= static_cast<float>(s.window);
    pool(s.pool, s.pool_kernel, reduced, all.emplace_back());
    for (const float x : all.back()) largest = std::max(largest, x);
  }
  for (std::vector<float>& scores : all) scores.resize(layer.info().prompt_tokens, largest);
  return all;
}

Fields<PromptEviction> window_ranking_fields(std::string budget) {
  using S = PromptEviction;
  return Fields<S>()
      .add(budget_parameter(std::move(budget)), &S::budget)
      .add(window_parameter(64), &S::window)
      .add(pool_parameter("avg"), &S::pool)
      .add(pool_kernel_parameter(5), &S::pool_kernel)
      .add(group_parameter({"mean_weights", "sum_weights", "max_weights"}), &S::group)
      .add(sink_parameter(), &S::sink)
      .add(recent_parameter(), &S::recent);
}

}  // namespace kvcast::policy
