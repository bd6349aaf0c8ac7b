// A sweep's work in the order in which it shares most: by trace, then by replay, then by experiment.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/prepare.hpp"
#include "config/run.hpp"

namespace kvcast::app {

struct Task {
  std::int64_t ordinal = 0;  // place in the expanded sweep
  std::vector<std::pair<std::string, std::string>> values;
  Prepared prepared;
};

// Experiments that one replay serves.
struct ReplayGroup {
  std::vector<Task> tasks;
};

// Replays over one trace.
struct TraceGroup {
  std::vector<ReplayGroup> replays;
};

// i/n: the part of a sweep that this process takes. i counts from 1 to n, or from 0 to n − 1 (0 and n are the same
// part).
struct Shard {
  std::int64_t index = 0, count = 1;
};
Shard parse_shard(const std::string& text);

struct SweepPlan {
  std::vector<TraceGroup> traces;  // in the order in which the sweep first names them
  std::int64_t total = 0;          // experiments of this shard
  std::vector<std::string> keys;   // of the whole sweep, in its order
};

// Prepares every point: a mistake anywhere is found before any work is done. Experiments of one replay stay in one
// shard.
SweepPlan plan_sweep(const config::Node& config, const Shard& shard);

}  // namespace kvcast::app
