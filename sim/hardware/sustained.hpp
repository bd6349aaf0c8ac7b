// The rate of matrix products over a long prompt: a board runs them at its boost clock for a fraction of a second,
// until its power and its cooling set the clock.
#pragma once

#include "config/hardware.hpp"

namespace kvcast::hardware {

// Returns the share of tensor_flops that remains on average over work of this many seconds at the full rate: 1 up to a
// quarter of a second, gpu.sustained_rate from four seconds on, linear in the logarithm between.
double sustained_share(const config::Gpu& gpu, double seconds);

// Returns the machine with tensor_flops as they are on average over such work; the rate's uncertainty and source become
// those of gpu.sustained_rate as well.
config::Hardware sustained(const config::Hardware& hardware, double seconds);

}  // namespace kvcast::hardware
