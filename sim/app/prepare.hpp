// From a config to everything that one experiment needs, with the keys by which work is shared and found again.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "config/run.hpp"
#include "policy/policy.hpp"
#include "trace/trace.hpp"

namespace kvcast::app {

struct Prepared {
  config::Run run;
  const policy::Descriptor* policy = nullptr;
  // Equal keys: equal work. Each is a content hash of all inputs and of the program itself.
  std::string trace_key;   // the trace
  std::string replay_key;  // a policy over the trace
  std::string key;         // the experiment
};

// Identities of trace files by path: the points of a sweep share one, so that each file is hashed once.
using TraceIdentities = std::map<std::string, std::string>;

// Reads and checks a run down to the policy's parameters. UserError for anything that would fail later.
Prepared prepare(const config::Node& config, TraceIdentities& identities);
Prepared prepare(const config::Node& config);

policy::Lengths lengths_of(const config::Run& run);
std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared);

// Opens the file, or sets up the recipe at the run's context. UserError where the trace does not fit the model.
std::unique_ptr<trace::Trace> make_trace(const config::Run& run);

// Hash of the running program: results of one version of the code never stand beside another's unseen.
const std::string& code_version();

// The config with names and defaults resolved, as the store and reports show it.
std::string resolved_json(const Prepared& prepared);

}  // namespace kvcast::app
