// Uncertainty of effects that the model leaves out (an unknown engine, another version of a kernel), in addition to the
// uncertainty of numbers: half-widths learned from the residuals of groups of measurements.
#pragma once

#include "base/origin.hpp"
#include "config/hardware.hpp"

namespace kvcast::config {

// Half-widths of the natural logarithm of a time, 80 %, and a share of others; from configs/validation/intervals.yaml,
// which `kvcast validate times --intervals` writes.
struct OutsideErrors {
  Value kernels;          // programs and releases other than those whose kernels a GPU's numbers were fitted to
  Value derived_kernels;  // GPUs derived from one of the same architecture
  Value other_kernels;    // GPUs with neither
  Value fused;            // steps and prefills of serving engines and compiled code
  Value eager;            // steps of frameworks that launch operators one by one
  Value eager_prompts;    // their prompts
  Value eager_costs;      // share of the uncertainty of numbers that such frameworks' times need, at most 1
  Value policies;         // steps of serving engines under a policy other than full attention, in addition to `fused`
  Value eager_policies;   // the same of frameworks that launch operators one by one, in addition to these

  const Value& of(TimesOrigin fit) const {
    return fit == TimesOrigin::kFitted ? kernels : fit == TimesOrigin::kDerived ? derived_kernels : other_kernels;
  }
};

// Throws UserError if the file lacks a group.
OutsideErrors left_out();

}  // namespace kvcast::config
