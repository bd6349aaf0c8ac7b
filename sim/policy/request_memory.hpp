// Memory by request: what a scheduler must reserve for one request, and what a machine holds whatever it serves.
#pragma once

#include "policy/policy.hpp"

namespace kvcast::policy {

// Bytes in one pool.
struct PoolMemory {
  // While the prompt is read, and once it has been: a policy that evicts at the end of the prompt holds all of it
  // until then.
  double reading = 0, read = 0;
  double per_token = 0;  // for each generated token, mean over those expected
  double shared = 0;     // once a machine
};

struct RequestMemory {
  PoolMemory hbm, dram;
};

// Memory of a request under a policy, on a GPU that holds `model` (a part of a model, with its full-attention layers
// alone). attended: KV pairs that a head attends to, mean, for storage that depends on it.
RequestMemory request_memory(const Policy& policy, const config::Model& model, const Lengths& request,
                             double attended = 0);

}  // namespace kvcast::policy
