// Simulates experiments over one replay and returns typed results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "policy/policy.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"
#include "score/task_score.hpp"
#include "simulate/experiment.hpp"
#include "study/shared_work.hpp"
#include "study/study.hpp"

namespace kvcast::study {

// An experiment that differs from a point's.
struct PointVariant {
  int batch = 1;
  bool fits_only = false;  // only whether it fits is requested, no times
  hardware::Shift shift;   // of memory
  Cancel cancel = {};
};

class Replayed;
// The replays of a policy on the traces of a run, in the run's order.
using Replays = std::vector<std::shared_ptr<const Replayed>>;

// One policy over one trace. `scores` is read at construction only; a policy that `rounds` the cache has no task score;
// on_machine() may be called from several threads.
class Replayed {
 public:
  Replayed(std::unique_ptr<const policy::Policy> policy, replay::ReplayResult replayed, const score::ScoreModel& scores,
           bool rounds);

  const policy::Policy& policy() const { return *policy_; }
  const replay::ReplayResult& replay() const { return replayed_; }

  // Work that was timed for the same task and variation on other traces.
  struct Timed {
    std::shared_ptr<const simulate::Lowered> work;
    result::Experiment experiment;
  };
  // Simulates the experiment on trace `trace` of the task's run, that of the longest prompts; `shorter`: on the same
  // text at the other lengths of the batch, in ascending order. Work in `timed` is not timed again; other work is added
  // to it. A timeline is of the first text.
  result::Result on_machine(const Task& task, std::size_t trace, const Replays& shorter, const PointVariant& variation,
                            std::vector<Timed>& timed, SharedWork& shared) const;

 private:
  std::shared_ptr<const simulate::Lowered> lower(const config::Run& run, const Replays& shorter,
                                                 const simulate::LoweringOptions& what) const;
  // For prompts of this length.
  result::Accuracy accuracy_at(std::int64_t prompt, const config::Run& run) const;

  std::unique_ptr<const policy::Policy> policy_;
  replay::ReplayResult replayed_;
  result::Accuracy accuracy_;
};

// Simulates the outputs requested by the task's Ask, as configured or at the largest batch that fits, on all traces of
// its run together. May be called from several threads with the same replays; uses at most `threads` of its own, on
// which the result does not depend. Throws Cancelled.
result::Result result_of(const Task& task, const Replays& replays, SharedWork& shared, const Cancel& cancel = {},
                         int threads = 1);

// Simulates the index build that the task requests; needs no replay. Throws UserError if the model has fewer KV heads.
result::Result build_index(const Task& task);

}  // namespace kvcast::study
