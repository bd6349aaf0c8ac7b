// SnapKV's scores for policies that choose among the tokens in another way: NVIDIA/kvpress, snapkv_press.py.
#pragma once

#include <string>
#include <vector>

#include "policy_parts/prompt_eviction.hpp"

namespace kvcast::policy {

// A score per prompt token of each KV head: the mean weight that the window's queries give it, reduced over the group
// and pooled; tokens of the window have the largest score of the layer.
std::vector<std::vector<float>> ranked_by_window(const LayerInput& layer, const PromptEviction& setting);

// The parameters of these scores with kvpress's defaults, and a budget.
Fields<PromptEviction> window_ranking_fields(std::string budget);

}  // namespace kvcast::policy
