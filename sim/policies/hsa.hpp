// Hybrid sparse attention (HSA) as a second stage, for HSA alone and for RocketKV.
#pragma once

#include <memory>

#include "policy/fields.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {

struct HsaSetting {
  std::int64_t budget = 0;    // t: tokens' worth of traffic a step
  std::int64_t length = 0;    // N: tokens of a head that the ratio refers to; a budget of N or more reads all
  double ratio = 1;           // c2 = N / t, at least 1; split evenly over tokens and head dimensions
  bool nearest_dims = false;  // k1 rounded to the nearest integer, not down
  Group group = Group::kMeanWeights;
  bool norm_correction = true;  // SparQ's temperature for the dimensions left out
  bool zero_is_max = false;     // the bound that a dimension takes whose summed query is 0
  std::int64_t reserved = 0;    // generated tokens that the summaries have room for from the start

  int page() const;                                   // p = min(⌊c2⌋, ⌈√c2⌉)
  int dims(int head_dim) const;                       // k1 = d·p / c2, in [1, d]
  std::int64_t tokens() const { return budget / 2; }  // k2: attention's half of the traffic
};

std::unique_ptr<Retrieval> retrieve_hsa(const HsaSetting& setting);

// The parameters that HSA has wherever it stands; budget, length, ratio and reserved are left to the caller.
const Fields<HsaSetting>& hsa_fields();

// T_max: how many generated tokens are planned for.
std::int64_t max_new_tokens(const ParameterValues& values, const Lengths& lengths);

}  // namespace kvcast::policy
