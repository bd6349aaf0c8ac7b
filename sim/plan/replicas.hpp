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

// Returns one row for each setting. Of several experiments that differ only in their swept seeds, it is the one with
// the median throughput; of an even number, the slower of the two in the middle. Experiments that do not fit count as
// the slowest. Settings are in the order in which they first occur.
ResultRows middle_replicas(const ResultRows& rows);

}  // namespace kvcast::plan
