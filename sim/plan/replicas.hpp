// Replicas: experiments that draw another sample of the same setting.
#pragma once

#include <string>
#include <vector>

#include "plan/rows.hpp"
#include "result/result.hpp"

namespace kvcast::plan {

// Returns whether a swept key only draws another sample: "seed", "trace.seed".
bool is_seed(const std::string& key);

// A text that is equal for experiments which differ only in their swept seeds; empty if no seed is swept.
std::string replica_text(const result::Result& result);

// Of experiments that differ only in their swept seeds, returns the row of median throughput, the lower of two; one
// that does not fit counts as the slowest. Settings keep their order.
Rows middle_replicas(const Rows& rows);

}  // namespace kvcast::plan
