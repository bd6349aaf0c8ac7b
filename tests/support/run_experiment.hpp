// An experiment from its input, as the program lowers and times one point.
#pragma once

#include "simulate/experiment.hpp"

namespace kvcast::tests {

// Lowers the input and times it on the machine of its run; repeats this with all warm-up steps if the result is
// unsettled.
inline simulate::Experiment run_experiment(const simulate::ExperimentInput& input,
                                           const simulate::ExperimentOptions& options) {
  simulate::LoweringOptions what{options.prefill, options.decode, options.effects == simulate::Effects::kTimes, false,
                                 options.cancel};
  simulate::Experiment experiment =
      simulate::simulate(simulate::lower_experiment(input, what), input.run->hardware, options);
  if (!experiment.unsettled) return experiment;
  what.all_warmup = true;
  return simulate::simulate(simulate::lower_experiment(input, what), input.run->hardware, options);
}

}  // namespace kvcast::tests
