#include "policy/growth.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast::policy {

HeadCounts grown(HeadCounts counts, const Growth& growth, std::int64_t tokens) {
  const auto moved = [tokens](std::int64_t count, double rate) {
    return std::max<std::int64_t>(0, count + std::llround(rate * static_cast<double>(tokens)));
  };
  counts.attended = moved(counts.attended, growth.attended);
  counts.scored = moved(counts.scored, growth.scored);
  return counts;
}

}  // namespace kvcast::policy
