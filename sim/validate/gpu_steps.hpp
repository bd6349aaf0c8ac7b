// A decode step that kvcast-pipeline ran, as a run of the simulator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/results.hpp"
#include "config/run.hpp"
#include "policy/policy.hpp"

namespace kvcast::validate {

// What stands for a row of results: the model, the policy with its parameters, and what its heads did.
struct GpuStep {
  config::Run run;
  std::unique_ptr<policy::Policy> policy;
  policy::Lengths lengths;
  int steps = 1;                             // of one call
  std::vector<policy::HeadCounts> heads;     // [batch × KV heads], in every step but the first of a call
  std::vector<policy::HeadCounts> at_first;  // in that one
};

// UserError, with the row, where an axis or a count is missing, is no whole number, or contradicts the policy.
GpuStep gpu_step(const calibrate::Row& row, const config::Hardware& machine);

// Seconds of one step in steady state, the mean over a call, by lowering, cost model and engine.
struct StepPrediction {
  double seconds = 0;
  double uncertainty = 0;          // relative half-width
  Origin origin = Origin::kExact;  // worst of what makes up a twentieth of the step
  std::string out_of_memory;       // the pool, where the step does not fit: no seconds then
};
StepPrediction predict_step(const GpuStep& step);

}  // namespace kvcast::validate
