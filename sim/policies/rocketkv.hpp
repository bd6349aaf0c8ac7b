// RocketKV's split of a compression ratio between its two stages.
#pragma once

#include <cstdint>

namespace kvcast::policy {

struct RocketSplit {
  double ratio = 1;                // c
  double factor = 0;               // r
  std::int64_t length = 0;         // N: tokens of a head after the first stage, including generated ones
  double second_ratio = 1;         // c2 = N / t
  std::int64_t prompt_budget = 0;  // N − T_max: prompt tokens that are kept
};
// bound: S_max; budget: t; reserved: T_max; split_factor: r, adaptive if negative.
RocketSplit split_rocket(std::int64_t bound, std::int64_t budget, std::int64_t reserved, double split_factor);

}  // namespace kvcast::policy
