// How far an experiment's times move where its costs are off: the experiment again, with the costs of one source after
// the other longer and shorter by their uncertainty.
//
// What overlaps is thereby weighed as it is: a host that is just faster than the GPU becomes the pace when its calls
// take longer, and work that is hidden comes to light. Charging uncertainties to what a step waits for, as the
// `intervals` of a record do, sees neither.
#pragma once

#include <nlohmann/json.hpp>

#include "workload/experiment.hpp"

namespace kvcast::workload {

// [{"source", "longer": {"decode", "prefill", "breakdown"}, "shorter": {..}}], parts of an experiment's record. A
// source that could not move a step or the prefill by one per cent is left out. Empty where the experiment does not fit
// in memory.
nlohmann::json shifted(const ExperimentInput& input, const Experiment& experiment);

// The same of an index build: [{"source", "longer": {"build"}, "shorter": {..}}].
nlohmann::json shifted_build(const config::Run& run, const policy::Policy& policy, int kv_heads);

}  // namespace kvcast::workload
