// A replay whose counts encode their layer and step.
#pragma once

#include <vector>

#include "replay/replay.hpp"

namespace kvcast::replay {

// Two heads per layer, which attend to 1000 · layer + 10 · step + head tokens. `dense`: layers left uncompressed.
inline ReplayResult replay_of(const std::vector<int>& captured, int steps, int dense = 0) {
  ReplayResult r;
  r.prompt_tokens = 500, r.decode_steps = steps, r.dense_layers = dense;
  for (const int layer : captured) {
    LayerCounts& counts = r.layers.emplace_back();
    counts.layer = layer, counts.heads = 2;
    for (int step = 0; step < steps; ++step) {
      for (int head = 0; head < 2; ++head) counts.counts.push_back({.attended = 1000 * layer + 10 * step + head});
    }
  }
  return r;
}

}  // namespace kvcast::replay
