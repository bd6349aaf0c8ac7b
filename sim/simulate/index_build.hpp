// The time that a policy takes to build its index, by itself: what papers measure beside whole prefills.
#pragma once

#include "config/run.hpp"
#include "policy/policy.hpp"
#include "result/experiment.hpp"

namespace kvcast::simulate {

using result::IndexBuild;

// Runs Policy::prefill_layer for one layer with `kv_heads` of the model's KV heads and their query heads, keys and
// queries at hand. What the policy sends to host memory for later runs beside it and is not waited for. A policy that
// builds nothing takes no time but for the wait. effects: with those of the sources that could move the time by a per
// cent, in detail.
IndexBuild build_index(const config::Run& run, const policy::Policy& policy, int kv_heads, bool effects = false);

}  // namespace kvcast::simulate
