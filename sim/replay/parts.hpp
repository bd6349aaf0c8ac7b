// Parts of a replay that each represent the whole; their spread estimates the sampling error of the layers and steps in
// a trace.
#pragma once

#include <vector>

#include "replay/replay.hpp"

namespace kvcast::replay {

// At most this many parts: enough to estimate their spread, few enough to be timed one by one.
inline constexpr int kMostParts = 8;

// The captured layers that the policy compresses, one or more per part; if there are only a few, each gives two, of the
// first and of the second half of its steps after the warm-up (replay/draw.hpp). Heads stay together: recipes give each
// layer its kinds of heads in their usual shares, so that single heads differ far more than layers do. Proxies, traffic
// and selections are left empty. Empty if there are fewer than two parts, or all have equal counts.
std::vector<ReplayResult> parts(const ReplayResult& replay);

}  // namespace kvcast::replay
