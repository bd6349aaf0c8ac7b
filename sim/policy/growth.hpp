// Converts counts at one context to those at another by a policy's growth.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policy/policy.hpp"

namespace kvcast::policy {

// Moves counts of heads from one context to another, both in tokens; counts stay ≥ 0. One object serves many heads,
// because the shift depends on the contexts alone.
class GrowthBy {
 public:
  GrowthBy(const Growth& growth, std::int64_t from, std::int64_t to);
  HeadCounts operator()(HeadCounts counts) const {
    counts.attended =
        std::max<std::int64_t>(0, std::llround(static_cast<double>(counts.attended) * ratio_) + attended_);
    counts.scored = std::max<std::int64_t>(0, counts.scored + scored_);
    if (cpu_attended_ != 0 && counts.cpu_attended > 0) {
      const std::int64_t grown = std::max<std::int64_t>(0, counts.cpu_attended + cpu_attended_);
      counts.candidates = counts.candidates * grown / counts.cpu_attended;
      counts.cpu_attended = grown;
    }
    return counts;
  }

 private:
  std::int64_t attended_ = 0, scored_ = 0, cpu_attended_ = 0;
  double ratio_ = 1;
};

inline HeadCounts grown(const HeadCounts& counts, const Growth& growth, std::int64_t from, std::int64_t to) {
  return GrowthBy(growth, from, to)(counts);
}

// Returns whether a replay ends with a budget that is not full yet, but that is full before the last token.
inline bool fills_later(const Growth& growth, std::int64_t replayed, std::int64_t last) {
  return replayed < growth.fill && growth.fill < last;
}

}  // namespace kvcast::policy
