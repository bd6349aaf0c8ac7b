// Suite `gpu_prompts`: does the simulator predict prompts that Hugging Face transformers reads in blocks?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "validate/committed.hpp"
#include "validate/papers.hpp"

namespace kvcast::validate {

// A prompt of kernels/transformers_prompts.py.
struct MeasuredPrompt {
  std::string attention, policy;                               // flash, sdpa, eager; full, keydiff, tova
  std::int64_t batch = 1, context = 1, block = 0, budget = 0;  // tokens; block 0: the whole prompt at once
  std::optional<double> seconds;  // of the first reading under sdpa, which plans attention; else the median
  std::vector<double> blocks;     // seconds of each block; empty if there are none
  bool planned = false;  // an earlier prompt under sdpa had blocks of the same lengths: plans last as the process
};

struct MeasuredPrompts {
  std::string device, model, release;  // release of transformers: "5.17"
  std::int64_t layers = 1;
  std::vector<MeasuredPrompt> prompts;
};

// Throws UserError naming the file and the prompt if the file is not what the script writes, or times are not positive.
MeasuredPrompts read_prompts(const std::string& path);

// The times of the project's own prompts, as claims of the suite `times` about prompts and policies in eager
// frameworks. An empty list if there are none.
std::vector<Paper> prompt_times();

// input: results of the script and a profile of their machine; empty for the project's own. Predicts the time of each
// prompt, that of a block in the first and in the last quarter while a cache grows, the ratio of short to long blocks,
// and the time that KeyDiff saves against TOVA. Without results the suite states what to run and has no cases.
Suite gpu_prompts(const Measured& input, const RunAll& run_all);

}  // namespace kvcast::validate
