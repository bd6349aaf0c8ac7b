// From a config to everything that one experiment needs, with the keys by which work is shared and found again.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "config/run.hpp"
#include "policy/policy.hpp"
#include "result/result.hpp"
#include "trace/trace.hpp"

namespace kvcast::study {

struct Prepared {
  config::Run run;
  const policy::Descriptor* policy = nullptr;
  // Equal keys mean equal work. Each is a content hash of all inputs and of the program itself.
  std::string trace_key;    // the trace
  std::string replay_key;   // a policy over the trace
  std::string lowered_key;  // the lowered work: everything but the machine
  std::string key;          // the experiment
};

// Prepares the points of a study; what several of them share is worked out once. One preparer a thread.
class Preparer {
 public:
  // Reads and checks a run down to the policy's parameters. UserError for anything that would fail later.
  Prepared prepare(const config::Node& config);

 private:
  std::string trace_identity(const config::Run& run);
  const std::string& policy_text(const config::PolicyChoice& policy);
  std::map<std::string, std::string> identities_;  // of traces, by what they are made from
  std::map<std::string, std::string> policies_;    // texts of policies, by name and parameters
  std::string score_files_;                        // hash of the files that task scores depend on
};

Prepared prepare(const config::Node& config);

policy::Lengths lengths_of(const config::Run& run);
std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared);

// Opens the file, or sets up the recipe at the run's context. UserError where the trace does not fit the model.
std::unique_ptr<trace::Trace> make_trace(const config::Run& run);

// Hash of the running program: results of one version of the code never stand next to another's unseen.
const std::string& code_version();

// Every number of a machine with its origin, uncertainty and source.
std::vector<result::MachineNumber> machine_numbers(const config::Hardware& hardware);

// The subject of a prepared experiment: names and defaults resolved.
result::Subject subject_of(const Prepared& prepared);

}  // namespace kvcast::study
