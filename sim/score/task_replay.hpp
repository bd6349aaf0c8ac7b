// The replay of one task by a policy: its prompts, and the sample traces that represent them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run.hpp"
#include "score/catalogue.hpp"
#include "score/sample_trace.hpp"

namespace kvcast::score {

struct TaskReplay {
  TaskSpec task;
  std::string model;                   // name under configs/models, or a path
  std::vector<PromptLength> contexts;  // its prompts
  config::PolicyChoice policy;
  bool coupled = false, whole_prompt = false, each_turn = false;
  double window_share = 0;  // share of the prompt whose last queries the policy looks at ...
  std::int64_t window = 0;  // ... or the number of these queries
  config::CacheFormat cache = config::Precision::kBf16;
};

// Prompts of a task on a model; `stated`: the length that a table or a run names, which includes room for the answer. A
// task whose length only a table can state has a prompt of 0 tokens if none is stated.
std::vector<PromptLength> prompts_of(const TaskSpec& task, const config::Model& model,
                                     std::optional<std::int64_t> stated);

// Replays prompts of all lengths if a budget of so many tokens covers some of them: one length cannot represent all of
// them then.
void spread_over_lengths(TaskReplay& replay, std::int64_t budget, std::int64_t longest);

// Throws UserError if the policy looks at all queries of prompts that are too long for that; `policy` is its name.
void check_whole_prompt(const TaskReplay& replay, const std::string& policy);

// A sample trace of one part of a task.
struct PartTrace {
  std::size_t part = 0;
  TraceRequest trace;
  double weight = 1;  // among traces of its part
};
std::vector<PartTrace> traces_of(const TaskReplay& replay, int seeds);

}  // namespace kvcast::score
