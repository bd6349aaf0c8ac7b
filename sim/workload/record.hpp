// An experiment as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "workload/experiment.hpp"

namespace kvcast::workload {

// Phases of an experiment whose sensitivities are asked for, and whether that of its fit in memory is.
struct Phases {
  bool step = true, prefill = true, fits = false;
};

// The record that `run --json` prints and the store keeps.
nlohmann::json to_json(const Experiment& experiment, const ExperimentInput& input);

// Detailed effects as parts of such a record: [{"source", "longer": {"decode", "breakdown", "prefill"}, "shorter":
// {..}}].
nlohmann::json shifted_json(const Experiment& experiment, const Phases& asked = {});

// Every number of the machine with its origin, uncertainty and source: [{what, origin, uncertainty, source}].
nlohmann::json rests_on(const config::Hardware& hardware);

}  // namespace kvcast::workload
