// One task as a policy is replayed on it: its prompts, and the sample traces that stand for them.
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
  std::string model;                   // under configs/models, or a path
  std::vector<PromptLength> contexts;  // its prompts
  config::PolicyChoice policy;
  bool coupled = false, whole_prompt = false, each_turn = false;
  double window_share = 0;  // of the prompt, whose last queries the policy looks at ...
  std::int64_t window = 0;  // ... or so many of them
  config::Precision cache = config::Precision::kBf16;
};

// Prompts of a task on a model; `stated`: the length that a table or a run names, with room for the answer in it. A
// task whose length only a table can tell has a prompt of 0 tokens where none is stated.
std::vector<PromptLength> prompts_of(const TaskSpec& task, const config::Model& model,
                                     std::optional<std::int64_t> stated);

// Prompts of all lengths stand for the task where a budget of so many tokens covers some of them: one length does not
// stand for all then.
void spread_over_lengths(TaskReplay& replay, std::int64_t budget, std::int64_t longest);

// UserError where the policy looks at all queries of prompts that are too long for that; `policy`: its name.
void check_whole_prompt(const TaskReplay& replay, const std::string& policy);

// A sample trace of one part of a task.
struct PartTrace {
  std::size_t part = 0;
  TraceRequest trace;
  double weight = 1;  // among those of its part
};
std::vector<PartTrace> traces_of(const TaskReplay& replay, int seeds);

}  // namespace kvcast::score
