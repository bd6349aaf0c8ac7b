// What an engine does by itself with long prompts.
#pragma once

#include <cstdint>

#include "config/yaml.hpp"

namespace kvcast::config {

// Tokens of a chunk in which the framework of a run reads prompts, where the run's workload does not say: its
// `prefill_chunk` for contexts of more than `chunks_beyond` tokens; 0: whole prompts. `choice` as in read_framework.
std::int64_t default_chunk(const Node& choice, std::int64_t context);

}  // namespace kvcast::config
