// The time that a policy takes to build its index, by itself: what papers measure beside whole prefills.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "config/run.hpp"
#include "hardware/terms.hpp"
#include "metrics/attribution.hpp"
#include "policy/policy.hpp"

namespace kvcast::workload {

struct IndexBuild {
  double seconds = 0;         // from the first call of the host until it knows that all is done
  metrics::Attribution time;  // of these seconds
};

// Runs Policy::prefill_layer for one layer with `kv_heads` of the model's KV heads and their query heads, keys and
// queries at hand. What the policy sends to host memory for later runs beside it and is not waited for. A policy that
// builds nothing takes no time but for the wait.
IndexBuild build_index(const config::Run& run, const policy::Policy& policy, int kv_heads,
                       const hardware::Shift& shift = {});

// By source, the seconds that its costs may be off.
std::map<std::string, double> uncertain_of_build(const config::Run& run, const policy::Policy& policy, int kv_heads);

// {"build": {"seconds", "breakdown"}, "origin"}, as parts of an experiment's record.
nlohmann::json to_json(const IndexBuild& build);

}  // namespace kvcast::workload
