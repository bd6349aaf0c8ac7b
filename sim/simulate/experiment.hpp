// One experiment: prefill and decode of a batch under a policy on a machine, from counts of a replay to predictions.
#pragma once

#include <ostream>

#include "config/hardware.hpp"
#include "hardware/terms.hpp"
#include "result/experiment.hpp"
#include "simulate/lowered.hpp"

namespace kvcast::simulate {

using result::Experiment;
using result::kTraceSample;

// Which effects of uncertain costs a simulation works out.
enum class Effects {
  kNone,
  kTimes,     // sources that could move a step or the prefill by two per cent, and the trace's sample
  kDetailed,  // sources that could move one of them by one per cent, with attributions of the times
};

struct ExperimentOptions {
  bool timeline = false;                 // keep the spans of one decode step
  std::ostream* chrome_trace = nullptr;  // write the middle decode window as a Chrome trace
  hardware::Shift shift;                 // costs of one source longer or shorter
  bool prefill = true, decode = true;    // the phases to run; times of the other stay 0
  Effects effects = Effects::kNone;
};

// Times lowered work on a machine. Several threads may do so with the same `lowered`, which must hold the phases asked
// for, and parts of the sample if effects on times are.
Experiment simulate(const Lowered& lowered, const config::Hardware& hardware, const ExperimentOptions& options);

// Lowers the input and times it on its run's machine; again with all warm-up steps where it is unsettled.
Experiment run_experiment(const ExperimentInput& input, const ExperimentOptions& options);

}  // namespace kvcast::simulate
