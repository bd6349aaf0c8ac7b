// The KV cache that a serving engine allocates when it starts: what a run of its largest pass leaves of the memory.
#pragma once

#include <cstdint>

#include "base/origin.hpp"
#include "config/model.hpp"

namespace kvcast::lower {

struct EngineMemory {
  double total_bytes = 0;    // of the device, as the driver states it
  double utilisation = 0.9;  // share of it that the engine may use
  std::int64_t max_sequences = 256;
  std::int64_t pass_tokens = 2048;      // largest number of new tokens in a pass
  std::int64_t block = 16;              // tokens of a block of the cache
  Value sampler = {}, graph_pool = {};  // Framework::sampler_bytes, graph_pool
};

// Blocks of the cache on one GPU; low and high by the uncertainty of what the engine's first run takes.
struct KvCapacity {
  std::int64_t blocks = 0, low = 0, high = 0;
};

// `rank`: one GPU's part of the model (config::rank_model). Nothing is left for a cache if blocks is 0.
KvCapacity kv_capacity(const config::Model& rank, const EngineMemory& engine);

}  // namespace kvcast::lower
