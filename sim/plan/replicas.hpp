// Experiments that draw another sample of the same thing.
#pragma once

#include <vector>

#include "result/result.hpp"

namespace kvcast::plan {

// Whether a swept key only draws another sample: "seed", "trace.seed".
bool is_seed(const std::string& key);

// One result of each setting: of experiments that differ in their swept seeds alone the one with the middle throughput,
// the lower of two. Those that do not fit come before all others. The order is that of the first of each.
std::vector<const result::Result*> middle_replicas(const std::vector<const result::Result*>& results);

}  // namespace kvcast::plan
