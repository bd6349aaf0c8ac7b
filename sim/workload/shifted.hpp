// How far an experiment's times move where its costs are off: the experiment again, with the costs of one source after
// the other longer and shorter by their uncertainty.
//
// What overlaps is thereby weighed as it is: a host that is just faster than the GPU becomes the pace when its calls
// take longer, and work that is hidden comes to light. Charging uncertainties to what a step waits for would see
// neither. Costs that rest on one source are off together, which is why two experiments can be compared: what both rest
// on cancels.
#pragma once

#include <nlohmann/json.hpp>

#include "workload/experiment.hpp"

namespace kvcast::workload {

// The experiment with its effects: each source that could move a step or the prefill by two per cent, taken from a few
// steps in the middle of decoding and from the first prompts; and the trace's sample, from parts of its replay
// (replay/parts.hpp) each of which stands for the whole. None where it does not fit in memory.
Experiment predict(const ExperimentInput& input, const ExperimentOptions& options);

// Of which times it is asked how far they move, and whether it is asked if the experiment fits in memory.
struct Phases {
  bool step = true, prefill = true, fits = false;
};

// [{"source", "longer": {"decode", "breakdown", "prefill"}, "shorter": {..}}], parts of an experiment's record: those
// of a step, and of the prefill, that the source could move by one per cent. Empty where the experiment does not fit in
// memory.
nlohmann::json shifted(const ExperimentInput& input, const Experiment& experiment, const Phases& asked = {});

// The same of an index build: [{"source", "longer": {"build"}, "shorter": {..}}].
nlohmann::json shifted_build(const config::Run& run, const policy::Policy& policy, int kv_heads);

}  // namespace kvcast::workload
