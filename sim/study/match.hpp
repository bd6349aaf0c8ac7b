// Solves runs with a `match:` for the budget with the requested cost.
//
// A candidate budget costs one replay on each of the run's traces, kept in the cache of replays under its usual key.
// The cost is combined over the traces as results are: a mean, and for memory the largest, so that the cost reached is
// what the result shows. The traces of a run are in memory together while it is solved, unless all replays are cached.
#pragma once

#include <string>
#include <vector>

#include "policy/policy.hpp"
#include "replay/replay.hpp"
#include "study/nearest_budget.hpp"
#include "study/study.hpp"

namespace kvcast::study {

// Solves the tasks that have an unsolved request. A request that no budget meets, or that a trace refuses, leaves the
// task with a reason (Task::refused). Throws Cancelled.
void solve(std::vector<Task>& tasks, const StudyOptions& options);

// Bytes that the policy's work of a decode step reads for one sequence, mean over all layers of the model: by kernels
// from HBM, and by CPU workers from host memory. The replayed layers represent all compressed ones.
double bytes_read(const config::Run& run, const policy::Policy& policy, const replay::ReplayResult& replayed);
// Bytes of HBM that the policy holds for each sequence of the run's batch at the end of decoding, all layers together.
double bytes_resident(const config::Run& run, const policy::Policy& policy, const replay::ReplayResult& replayed);

// The cost of one replay, as the request defines it.
double cost_of(const config::MatchChoice& request, const config::Run& run, const policy::Policy& policy,
               const replay::ReplayResult& replayed);

// "budget 1184 solved for tokens_attended 1024 (reached 1023.6)".
std::string text_of(const Matched& matched, const std::string& policy);

}  // namespace kvcast::study
