// What a card without a fit is off by: the kernels of one fitted card predicted by the profile of another.
#pragma once

#include <vector>

#include "config/hardware.hpp"
#include "graph/op.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

inline constexpr double kMicro = 1e6;  // microseconds in a second

// The card `to` as if nobody had measured it: capacities, rates of the data sheet, SMs and clock are its own; the
// bandwidth of the L2 goes by SMs and clock; all else is taken over from `from`, as uncertain as profiles state of such
// cards. configs/hardware/h20.yaml and others are made so by hand.
config::Hardware derived(const config::Hardware& from, const config::Hardware& to);

// Seconds by bytes over the memory's bandwidth or products over the peak, whichever is longer.
double roofline_seconds(const graph::Work& work, const config::Gpu& gpu);

// Held-out points of every fitted card by every other one that has a profile of the same framework.
inline constexpr const char* kDerivedCards = "kernels, derived within an architecture";
inline constexpr const char* kOtherCards = "kernels, derived across architectures";
std::vector<Case> transfers();

// Low and high of a prediction whose costs may be off by this share, and that may be off beside by a half-width of its
// logarithm.
void set_interval(Case& c, double uncertainty, double half_width);

}  // namespace kvcast::validate
