// Suite `gpu_pipeline`: does the simulator predict decode steps of real kernels and streams on a GPU?
#pragma once

#include "validate/committed.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// input: results of kvcast-pipeline (kernels/README.md) and their profile; empty for the project's own.
// Compares each measured step with the prediction by lowering, cost model and engine. Counts (pages recalled, tokens
// attended to) are those that the program states; no parameter was chosen with a pipeline in view. Without results the
// suite states what to run and has no cases. Throws UserError if results are malformed, name an unknown scheme or lack
// what a prediction needs.
Suite gpu_pipeline(const Measured& input);

// A table (CSV) of the predicted seconds of a step of each row, whether it has a time or not, so that predictions can
// be kept from before a measurement: the scheme, its axes, the profile, predicted_s. The latter is empty if no policy
// models the row or the step does not fit in memory. Rows that state no work, such as cases that make no sense, are
// left out. Throws as gpu_pipeline does.
std::string gpu_predictions(const Measured& input);

}  // namespace kvcast::validate
