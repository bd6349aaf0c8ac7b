#include "policy/growth.hpp"

#include <cmath>

namespace kvcast::policy {

GrowthBy::GrowthBy(const Growth& growth, std::int64_t from, std::int64_t to)
    : attended_(std::llround(growth.attended * static_cast<double>(to - from)) + std::min(growth.fill, to) -
                std::min(growth.fill, from)),
      scored_(std::llround(growth.scored * static_cast<double>(to - from))) {}

}  // namespace kvcast::policy
