// Counts of one context moved to another by a policy's growth.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policy/policy.hpp"

namespace kvcast::policy {

// Moves the counts of heads `tokens` later (earlier where negative) in their sequences; none below zero. Made once for
// many heads: how far counts move depends on the tokens alone.
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
