// Parts of a replay that each stand for the whole, from which it can be told how much hangs on the layers and steps
// that a trace happens to hold.
#pragma once

#include <vector>

#include "replay/replay.hpp"

namespace kvcast::replay {

// At most this many parts: enough to tell how far they lie apart, few enough to be timed one by one.
inline constexpr int kMostParts = 8;

// The captured layers that the policy compresses, one or more to a part; where there are only a few, each gives two, of
// the first and of the second half of its steps after the warm-up (replay/draw.hpp). Heads stay together: recipes give
// each layer its kinds of heads in their usual shares, so that single heads differ by far more than layers do. Proxies,
// traffic and selections are left empty. None where there are not two, or where all parts have equal counts.
std::vector<ReplayResult> parts(const ReplayResult& replay);

}  // namespace kvcast::replay
