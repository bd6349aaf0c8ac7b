// A policy over the trace of a file: what it selects, and how close its attention is to full attention; no hardware.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"

namespace kvcast::api {

struct ReplayedPolicy {
  std::string policy;
  replay::ReplayResult result;
  std::string trace;  // its identity
  std::optional<result::TaskScore> task;
};

// Reads a policy by its name or file. The settings "a=v" are rooted at the policy.
config::PolicyChoice replay_choice(const std::string& policy, const std::vector<std::string>& settings);

// Throws UserError for a trace that is malformed or that the policy cannot be replayed on, and Cancelled.
ReplayedPolicy replay(const std::string& trace, const config::PolicyChoice& choice,
                      const replay::ReplayOptions& options, const Cancel& cancel = {});

// {policy, trace_source, prompt_tokens, decode_steps, recall_mass_mean, recall_mass_p10, output_error_mean,
// topk_overlap_mean, attended_mean, distinct_mean, corrected_share, log_volume_mean, task, bytes: {hbm, link, dram},
// prompt, task_refused}.
nlohmann::json to_json(const ReplayedPolicy& replayed);

}  // namespace kvcast::api
