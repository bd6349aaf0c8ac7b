// How far predictions may be off by what the model leaves out (an engine that is not known, another version of a
// kernel), beside what uncertain numbers explain: half-widths learnt from the residuals of groups of measurements.
#pragma once

#include "base/origin.hpp"

namespace kvcast::config {

// Half-widths of the natural logarithm of a time, 80 %; from configs/validation/intervals.yaml, which `kvcast validate
// times --intervals` writes.
struct LeftOut {
  Value kernels;          // of cards with a fit
  Value derived_kernels;  // of cards derived from one of the same architecture
  Value other_kernels;    // of cards without either
  Value fused;            // steps and prompts of serving engines and compiled code
  Value eager;            // those of frameworks that launch operators one by one
};

// Read once. UserError where the file lacks a group.
const LeftOut& left_out();

}  // namespace kvcast::config
