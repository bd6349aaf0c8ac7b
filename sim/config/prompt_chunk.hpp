// Default size of prefill chunks of an engine.
#pragma once

#include <cstdint>

#include "config/yaml.hpp"

namespace kvcast::config {

// Tokens per prefill chunk of a run's framework if the workload does not say: its `prefill_chunk` for contexts of more
// than `chunks_beyond` tokens; 0: whole prompts. `choice` as in read_framework.
std::int64_t default_chunk(const Node& choice, std::int64_t context);

}  // namespace kvcast::config
