// Hybrid sparse attention (HSA) as a second stage, for HSA itself and for RocketKV.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "policy/fields.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {

struct HsaSetting {
  std::int64_t budget = 0;    // t: traffic of a step, in tokens
  std::int64_t length = 0;    // N: tokens of a head that the ratio refers to; a budget of N or more reads everything
  double ratio = 1;           // c2 = N / t ≥ 1; split evenly over tokens and head dimensions
  bool nearest_dims = false;  // rounds k1 to the nearest integer rather than down
  Group group = Group::kMeanWeights;
  bool norm_correction = true;  // SparQ's temperature for the omitted dimensions
  bool zero_is_max = false;     // whether a dimension whose summed query is 0 takes its upper bound
  SummaryFormat format = SummaryFormat::kCache;
  std::optional<std::int64_t> planned = {};  // T_max; none: the tokens expected
  std::int64_t reserved = 0;                 // generated tokens for which the summaries are allocated from the start

  std::int64_t reserved_for(const Lengths& request) const { return planned.value_or(request.decode_steps); }
  int page() const;                                   // p = min(⌊c2⌋, ⌈√c2⌉)
  int dims(int head_dim) const;                       // k1 = d·p / c2, in [1, d]
  std::int64_t tokens() const { return budget / 2; }  // k2: attention's half of the traffic
};

// at: the setting for a request, with length, ratio and reserved.
std::unique_ptr<Retrieval> retrieve_hsa(const HsaSetting& setting,
                                        std::function<HsaSetting(const HsaSetting&, const Lengths&)> at);

// The parameters of HSA in every policy that contains it; the caller sets the budget.
Fields<HsaSetting> hsa_fields();

}  // namespace kvcast::policy
