#include "policy/growth.hpp"

#include <cmath>

namespace kvcast::policy {

namespace {

std::int64_t attended_within(const Growth& growth, std::int64_t tokens) {
  if (tokens <= growth.fill) return tokens;
  return growth.when_full > 0 ? growth.when_full : growth.fill;
}

// Nothing is scored while all tokens are attended to.
double scored_within(const Growth& growth, std::int64_t tokens) {
  return growth.fill > 0 && tokens <= growth.fill ? 0 : growth.scored * static_cast<double>(tokens);
}

}  // namespace

GrowthBy::GrowthBy(const Growth& growth, std::int64_t from, std::int64_t to)
    : attended_(std::llround(growth.attended * static_cast<double>(to - from)) + attended_within(growth, to) -
                attended_within(growth, from)),
      scored_(std::llround(scored_within(growth, to) - scored_within(growth, from))),
      cpu_attended_(std::llround(growth.cpu_attended * static_cast<double>(to - from))),
      ratio_(growth.proportional && from > 0 ? static_cast<double>(to) / static_cast<double>(from) : 1) {}

}  // namespace kvcast::policy
