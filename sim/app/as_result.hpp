// The typed result (result/result.hpp) of what one experiment of a sweep computed.
#pragma once

#include <vector>

#include "app/prepare.hpp"
#include "config/hardware.hpp"
#include "result/result.hpp"
#include "store/store.hpp"
#include "workload/experiment.hpp"

namespace kvcast::app {

// What is simulated, from resolved_json(); `swept` is left empty.
result::Subject subject_of(const Prepared& prepared);

// Fills in the status, the experiment and the accuracy.
void fill_in(result::Result& result, const workload::Experiment& experiment, const workload::ExperimentInput& input);

// Every number of a machine in base units; curves have no value.
std::vector<store::MachineNumber> machine_numbers(const config::Hardware& hardware);

}  // namespace kvcast::app
