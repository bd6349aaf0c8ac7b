// Simulates one experiment: prefill and decode of a batch under a policy on a machine, from the counts of a replay to
// predictions.
#pragma once

#include <ostream>

#include "base/cancel.hpp"
#include "config/hardware.hpp"
#include "hardware/terms.hpp"
#include "result/experiment.hpp"
#include "simulate/lowered.hpp"

namespace kvcast::simulate {

using result::Experiment;
using result::kTraceSample;

// Effects of uncertain costs that a simulation evaluates.
enum class Effects {
  kNone,
  kTimes,     // sources that could change a step or the prefill by 2 %, and the sampling error of the trace
  kDetailed,  // sources that could change one of them by 1 %, with attributions of the times
};

struct ExperimentOptions {
  bool timeline = false;                 // keep the spans of one decode step
  std::ostream* chrome_trace = nullptr;  // write the middle decode window as a Chrome trace
  hardware::Shift shift;                 // shift of the costs of one source
  bool prefill = true, decode = true;    // phases to simulate; the times of the other stay 0
  Effects effects = Effects::kNone;
  Cancel cancel = {};
};

// Times lowered work on a machine. Several threads may share `lowered`, which must contain the requested phases, and
// the parts of the sample if effects on times are requested. Throws Cancelled.
Experiment simulate(const Lowered& lowered, const config::Hardware& hardware, const ExperimentOptions& options);

}  // namespace kvcast::simulate
