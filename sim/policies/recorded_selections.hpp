// A file of recorded selections, and what it shows of the tokens that a longer run holds and attends to.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "policy/selection.hpp"

namespace kvcast::policy {

struct RecordedSelections {
  std::string path;
  std::string trace;  // identity of the trace that it was recorded on; empty if no line names one
  std::int64_t prompt_tokens = 0;
  bool per_query_head = false;
  bool fetches = false;     // some token comes from the host
  bool partial = false;     // some token comes from the host, leaves the GPU, or is not resident after the prompt
  bool same_tokens = true;  // all heads of a layer hold the same tokens: the query heads of a KV head share them
  // Selections of each layer: that after the prompt (step −1, which may be missing), then one per step.
  std::map<int, std::map<int, LayerSelection>> layers;

  // Tokens that a head holds on the GPU after the prompt and after the last step, mean over layers and heads. 0 if the
  // record fetches tokens but does not list those resident after the prompt.
  double after_prompt = 0, after_last = 0;
  // Shares of the heads that keep each later token, and that attend to each later token in every step after it.
  double keeping = 0, growing = 0;

  bool has_prompt_lists() const { return layers.begin()->second.begin()->first == -1; }
  int steps() const { return layers.begin()->second.rbegin()->first + 1; }
};

// Throws UserError with file and line for a record that is malformed or incomplete, or that does not fit the prompt:
// positions that a step cannot see, and reads of tokens that are neither resident nor fetched. Such reads are
// accepted in a record without any fetch, because its method may attend on the CPU.
RecordedSelections read_selections(const std::string& path, std::int64_t prompt_tokens);

}  // namespace kvcast::policy
