// Suite `gpu_pipeline`: does the simulator foretell decode steps of real kernels and streams on a GPU?
#pragma once

#include <string>

#include "validate/suite.hpp"

namespace kvcast::validate {

struct GpuPipelineInput {
  std::string results;  // of kvcast-pipeline (kernels/README.md); empty: the files of configs/validation/gpu_pipeline
  std::string profile;  // that calibrate made on that machine; for a file of that folder: configs/hardware has its name
};

// Each measured step beside the prediction by lowering, cost model and engine. Counts (pages recalled, tokens attended
// to) are those that the program states; no parameter was chosen with a pipeline in view. Where there are no results
// the suite says what to run, and has no cases. UserError for results that are malformed, name an unknown scheme or
// lack what a prediction needs.
Suite gpu_pipeline(const GpuPipelineInput& input);

}  // namespace kvcast::validate
