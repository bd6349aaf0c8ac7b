// Derives from a configuration everything that one experiment needs, with the keys by which work is shared and cached.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "policy/policy.hpp"
#include "result/result.hpp"
#include "score/catalogue.hpp"
#include "study/nearest_budget.hpp"
#include "study/service.hpp"
#include "trace/trace.hpp"

namespace kvcast::study {

// The keys of the work on one trace of a run. Equal keys mean equal work. Each is a content hash of all inputs and of
// the program itself.
struct TraceKeys {
  std::string trace;    // the trace
  std::string replay;   // a policy over the trace
  std::string lowered;  // the lowered work: everything except the machine
};

// A run's `match:` and its solution.
struct Matched {
  config::MatchChoice request;
  bool solved = false;
  std::optional<std::int64_t> budget;  // none: the policy compresses nothing and runs unchanged
  double reached = 0;                  // the cost, combined over the run's traces
};

struct Prepared {
  config::Run run;  // with the solved budget
  const policy::Descriptor* policy = nullptr;
  // The policy as made for the first trace, for questions that need no survey; while `match:` is unsolved, with the
  // largest budget.
  std::shared_ptr<const policy::Policy> made;
  policy::ReplayNeeds needs;      // for the workload's lengths
  std::vector<TraceKeys> traces;  // in the order of run.traces
  std::string replays;            // the replays on all traces
  std::string key;                // the experiment; a content hash as well
  std::optional<Matched> matched;
  std::optional<RequestLengths> requests;  // with traffic
};

// Prepares the points of a study; work shared by several of them is done once. One preparer per thread.
class Preparer {
 public:
  explicit Preparer(Cancel cancel = {}) : cancel_(std::move(cancel)) {}
  // Reads and checks a run down to the policy's parameters. Throws UserError for anything that would fail later, and
  // Cancelled. A `match:` is not solved: the policy's budget is its default.
  Prepared prepare(const config::Node& config);
  // Prepares a run whose `match:` is solved. Its replays and lowered work are those of the same run with that budget
  // written; its own key differs, because its result states the request.
  Prepared prepare(const config::Node& config, const Matched& solved);

 private:
  void prepare_requests(const config::Node& config, Prepared& p);
  std::string trace_identity(const config::Run& run, const config::TraceChoice& choice);
  const std::string& policy_text(const config::PolicyChoice& policy);
  const std::string& score_text(const config::ScoreChoice& choice);
  Cancel cancel_;
  std::map<std::string, RequestLengths> requests_;  // by the text of the traffic
  std::map<std::string, std::string> identities_;   // of traces, by the text that determines them
  std::map<std::string, std::string> policies_;     // texts of policies, by name and parameters
  std::optional<score::Catalogue> catalogue_;
  std::map<std::string, std::string> benchmarks_;  // identities of benchmarks, by how they are written
  std::string prediction_files_;                   // hash of the files that predictions depend on
};

Prepared prepare(const config::Node& config);

policy::Lengths lengths_of(const config::Run& run);
// The same on one of the run's traces, which may have a length of its own.
policy::Lengths lengths_of(const config::Run& run, const config::TraceChoice& choice);
// Each text at each of these lengths: all texts at the first one, then all at the next.
std::vector<config::TraceChoice> at_lengths(const std::vector<config::TraceChoice>& texts,
                                            std::span<const std::int64_t> lengths);
// Makes the policy for a trace of the run, from which it may have its scores of heads (default_profile.hpp).
std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared, std::size_t trace = 0);
// Returns the same policy with other parameters.
std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared, const config::PolicyChoice& choice,
                                            std::size_t trace = 0);
// TraceKeys::replay of a policy over the trace with this key.
std::string replay_key(const std::string& trace_key, const config::PolicyChoice& policy,
                       const config::Workload& workload);

// Returns the budgets that the policy accepts in this run, which has a `match:`; those beyond a few contexts change
// nothing. Throws UserError if it accepts none.
BudgetRange valid_budgets(const config::Node& config, const Prepared& prepared);

// Opens the file of a trace. Throws UserError, with the location of the key, if there is none.
std::unique_ptr<trace::Trace> open_trace_of(const config::TraceChoice& choice);
// Opens the file, or sets up the recipe at the run's context. Throws UserError if the trace does not fit the model.
std::unique_ptr<trace::Trace> make_trace(const config::Run& run, const config::TraceChoice& choice);
// The error of a policy that could not be replayed or simulated, at its place in the run; names its file, and `on`, the
// trace, if they are given.
UserError refusal_of(const config::PolicyChoice& policy, const UserError& why, const std::string& on = "");
// "recipe needle, seed 1", or the path of the file.
std::string trace_name(const config::TraceChoice& choice);

// Hash of the running program, so that results of different versions of the code are never mixed unnoticed.
const std::string& code_version();

// Every number of a machine with its origin, uncertainty and source.
std::vector<result::MachineNumber> machine_numbers(const config::Hardware& hardware);

// The subject of a prepared experiment: names and defaults resolved.
result::Subject subject_of(const Prepared& prepared);
// Changes the subject's number of sequences, and the mean of their prompts.
void set_batch(result::Subject& subject, const config::Workload& workload);

}  // namespace kvcast::study
