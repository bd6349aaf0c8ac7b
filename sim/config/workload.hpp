// One batch: its prompts, the tokens that follow them, and how the prompts are read.
#pragma once

#include <cstdint>
#include <vector>

#include "config/framework.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

class Section;

struct Workload {
  std::int64_t prompt_tokens = 32768;  // of each prompt; of the longest one of the batch if they differ
  std::int64_t decode_tokens = 512;
  int batch = 1;
  std::int64_t prefill_chunk = 0;          // tokens per chunk; 0: the whole prompt at once
  int prefill_batch = 0;                   // sequences prefilled together, one group after the other; 0: all at once
  std::vector<std::int64_t> prompts = {};  // tokens of the sequences in turn, if they differ

  // The prompts of one length.
  struct Prompts {
    std::int64_t tokens = 0;
    int sequences = 0;
  };
  std::vector<Prompts> by_length() const;  // the shortest first
  double mean_prompt() const;
  // Changes the number of sequences, and `prompt_tokens` if prompts differ.
  void set_batch(int sequences);
};

// Reads `workload:` of a run.
Workload read_workload(Section section);
// Sets the keys of the prefill that `written`, the workload of the configuration or null, leaves out. A pass of an
// engine has a limited number of tokens, of one prompt or of several short ones.
void complete_prefill(const Framework& framework, const Node* written, Workload& workload);

}  // namespace kvcast::config
