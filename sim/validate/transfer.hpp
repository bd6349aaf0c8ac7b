// Error of a GPU profile without a fit: the kernels of one fitted GPU predicted by the profile of another.
#pragma once

#include <vector>

#include "config/hardware.hpp"
#include "graph/op.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

inline constexpr double kMicro = 1e6;  // microseconds in a second

// The GPU `to` as if nobody had measured it: it has its own link, capacities, data-sheet rates, SMs and clock; the L2
// bandwidth scales with SMs and clock; everything else, corrections of measured attention included, is taken from
// `from`, with the uncertainty that profiles state for such GPUs. configs/hardware/h20.yaml and others are made this
// way by hand.
config::Hardware derived(const config::Hardware& from, const config::Hardware& to);

// Seconds: bytes over memory bandwidth or FLOP over the peak, whichever is longer.
double roofline_seconds(const graph::Work& work, const config::Gpu& gpu);

// Held-out points of every fitted GPU, predicted by every other one that has a profile of the same framework.
inline constexpr const char* kDerivedCards = "kernels, derived within an architecture";
inline constexpr const char* kOtherCards = "kernels, derived across architectures";
std::vector<Case> transfers();

// Sets low and high of a prediction from the relative uncertainty of its costs and an independent half-width of its
// logarithm.
void set_interval(Case& c, double uncertainty, double half_width);

}  // namespace kvcast::validate
