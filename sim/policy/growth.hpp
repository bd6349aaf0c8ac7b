// Converts counts at one context to those at another by a policy's growth.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policy/policy.hpp"

namespace kvcast::policy {

// Moves counts of heads to a context of `tokens` more tokens (fewer if negative); counts stay ≥ 0. One object serves
// many heads, because the shift depends on `tokens` alone.
class GrowthBy {
 public:
  GrowthBy(const Growth& growth, std::int64_t tokens);
  HeadCounts operator()(HeadCounts counts) const {
    counts.attended = std::max<std::int64_t>(0, counts.attended + attended_);
    counts.scored = std::max<std::int64_t>(0, counts.scored + scored_);
    return counts;
  }

 private:
  std::int64_t attended_ = 0, scored_ = 0;
};

inline HeadCounts grown(const HeadCounts& counts, const Growth& growth, std::int64_t tokens) {
  return GrowthBy(growth, tokens)(counts);
}

}  // namespace kvcast::policy
