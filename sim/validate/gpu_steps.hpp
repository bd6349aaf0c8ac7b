// A decode step run by kvcast-pipeline, as a run of the simulator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/results.hpp"
#include "config/run.hpp"
#include "policy/policy.hpp"

namespace kvcast::validate {

// Simulator input for one row of results: the model, the policy with its parameters, and the counts of its heads.
struct GpuStep {
  config::Run run;
  std::unique_ptr<policy::Policy> policy;
  policy::Lengths lengths;
  int steps = 1;                             // per call
  std::vector<policy::HeadCounts> heads;     // [batch × KV heads], in every step but the first of a call
  std::vector<policy::HeadCounts> at_first;  // [batch × KV heads], in the first step of a call
};

// Returns why no policy can predict the row, if its scheme recalls in a way that the policy lacks; otherwise nothing.
std::string not_modelled(const calibrate::MeasuredRow& row);

// Throws UserError with the row if an axis or a count is missing, is not a whole number or contradicts the policy.
GpuStep gpu_step(const calibrate::MeasuredRow& row, const config::Hardware& machine);

// Time of one step in steady state, the mean over a call, predicted by lowering, cost model and engine.
struct StepPrediction {
  double seconds = 0;
  double uncertainty = 0;          // relative half-width
  Origin origin = Origin::kExact;  // worst origin among parts of at least a twentieth of the step
  std::string out_of_memory;       // the pool, if the step does not fit; there are no seconds then
};
StepPrediction predict_step(const GpuStep& step);

}  // namespace kvcast::validate
