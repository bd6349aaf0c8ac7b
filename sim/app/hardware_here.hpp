// The machine on which kvcast runs.
#pragma once

namespace kvcast::app {

// Prints GPUs, CPU and the `hardware:` of a run that stands for them. Throws UserError if there is no nvidia-smi, or no
// GPU that a profile stands for.
void print_hardware_here();

}  // namespace kvcast::app
