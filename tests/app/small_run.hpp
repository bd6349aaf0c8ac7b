// A run that takes a moment.
#pragma once

#include "app/record_of.hpp"

namespace kvcast::tests {

// Small enough to run in a moment: 16 layers, a prompt of 1000 tokens.
inline std::string small_run(const std::string& policy) {
  return "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: " + policy +
         "\nworkload: {prompt_tokens: 1000, decode_tokens: 40, batch: 2}\n"
         "trace: {recipe: needle, seed: 3, layers: 2, steps: 8}\n"
         "framework: {warmup_steps: 4, measured_steps: 4}\n";
}

inline nlohmann::json run_json(const std::string& policy, const std::vector<std::string>& settings = {}) {
  return record_of(small_run(policy), settings);
}

}  // namespace kvcast::tests
