// Time that a policy takes to build its index, which papers report separately from the time of whole prefills.
#pragma once

#include "config/run.hpp"
#include "policy/policy.hpp"
#include "result/experiment.hpp"

namespace kvcast::simulate {

using result::IndexBuild;

// Runs Policy::prefill_layer for one layer with `kv_heads` of the model's KV heads and their query heads, keys and
// queries already computed. Copies to host memory for later use overlap with it and are not waited for. A policy that
// builds no index takes only the time of the host's synchronisation. effects: adds those of the sources that could
// change the time by 1 %, with attributions.
IndexBuild build_index(const config::Run& run, const policy::Policy& policy, int kv_heads, bool effects = false);

}  // namespace kvcast::simulate
