// Replicas: experiments that draw another sample of the same setting.
#pragma once

#include <vector>

#include "result/result.hpp"

namespace kvcast::plan {

// Returns whether a swept key only draws another sample: "seed", "trace.seed".
bool is_seed(const std::string& key);

// Returns one result per setting: of experiments that differ only in their swept seeds the one with the median
// throughput, the lower of two. Those that do not fit sort before all others. The order is that of the first of each.
std::vector<const result::Result*> middle_replicas(const std::vector<const result::Result*>& results);

}  // namespace kvcast::plan
