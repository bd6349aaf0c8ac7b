// Window eviction: SnapKV's rule as a first stage, for SnapKV itself and for RocketKV.
#pragma once

#include <memory>

#include "policy/stages.hpp"

namespace kvcast::policy {

struct WindowEviction {
  std::int64_t budget = 0;  // tokens that stay of the prompt, the window included; at least `window`
  int window = 0;
  Pool pool = Pool::kMax;
  int pool_kernel = 1;
  Group group = Group::kSumWeights;  // of weights, or kPerHead
  bool frees = true;                 // false: evicted tokens stay in memory (RocketKV-MT)
};
std::unique_ptr<Retention> evict_by_window(const WindowEviction& setting);

// UserError where the pooling kernel is even.
void check_pool(const ParameterValues& values);
// The same, and where `budget` tokens cannot hold the window.
void check_window(const ParameterValues& values, std::int64_t budget);

}  // namespace kvcast::policy
