#include "policy/growth.hpp"

#include <cmath>

namespace kvcast::policy {

namespace {

std::int64_t attended_within(const Growth& growth, std::int64_t tokens) {
  if (tokens <= growth.fill) return tokens;
  return growth.when_full > 0 ? growth.when_full : growth.fill;
}

}  // namespace

GrowthBy::GrowthBy(const Growth& growth, std::int64_t from, std::int64_t to)
    : attended_(std::llround(growth.attended * static_cast<double>(to - from)) + attended_within(growth, to) -
                attended_within(growth, from)),
      scored_(std::llround(growth.scored * static_cast<double>(to - from))) {}

}  // namespace kvcast::policy
