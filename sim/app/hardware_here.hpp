// The machine on which kvcast runs.
#pragma once

namespace kvcast::app {

// Prints GPUs, CPU and the `hardware:` of a run for them. Throws UserError without nvidia-smi, and for a GPU that has
// neither a profile nor an answer in configs/cards/machines.yaml.
void print_hardware_here();

}  // namespace kvcast::app
