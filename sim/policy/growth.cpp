#include "policy/growth.hpp"

#include <cmath>

namespace kvcast::policy {

GrowthBy::GrowthBy(const Growth& growth, std::int64_t tokens)
    : attended_(std::llround(growth.attended * static_cast<double>(tokens))),
      scored_(std::llround(growth.scored * static_cast<double>(tokens))) {}

}  // namespace kvcast::policy
