// Counts of one context moved to another by a policy's growth.
#pragma once

#include <cstdint>

#include "policy/policy.hpp"

namespace kvcast::policy {

// The counts of a head `tokens` later (earlier where negative) in its sequence; none below zero.
HeadCounts grown(HeadCounts counts, const Growth& growth, std::int64_t tokens);

}  // namespace kvcast::policy
