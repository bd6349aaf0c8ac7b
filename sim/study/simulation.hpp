// Experiments over one replay, as typed results.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "policy/policy.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"
#include "score/task_score.hpp"
#include "simulate/experiment.hpp"
#include "study/study.hpp"

namespace kvcast::study {

// Accuracy proxies of a replay, and its predicted task score where the trace has a task.
result::Accuracy accuracy_of(const replay::ReplayResult& replayed, const score::ScoreModel& scores);

// One policy over one trace. Refers to objects that outlive it; simulate() may be called from several threads.
class Replayed {
 public:
  Replayed(const policy::Policy& policy, const replay::ReplayResult& replayed, const score::ScoreModel& scores);

  // What the task's Ask wants: as configured, or at the largest batch that fits.
  result::Result simulate(const Task& task) const;

 private:
  struct Variation {
    int batch = 1;
    bool fits_only = false;  // whether it fits is wanted, and no time
    hardware::Shift shift;   // of memory
  };
  result::Result simulate(const Task& task, const Variation& variation) const;
  result::Result at_largest_batch(const Task& task) const;
  bool fits(const Task& task, int batch, const hardware::Shift& shift) const;
  int largest_batch(const Task& task, int fits, int limit, const hardware::Shift& shift) const;
  int largest_batch_shifted(const Task& task, int batch, const hardware::Shift& shift) const;
  void add_fit_alternative(const Task& task, result::Result& result) const;
  void add_batch_alternatives(const Task& task, result::Result& result) const;
  std::shared_ptr<const simulate::Lowered> lowered(const config::Run& run, const std::string& key, bool parts) const;

  const policy::Policy& policy_;
  const replay::ReplayResult& replayed_;
  result::Accuracy accuracy_;
  // The lowered work that was used last: tasks of one machine after the other ask for the same.
  mutable std::mutex mutex_;
  mutable std::string lowered_key_;
  mutable std::shared_ptr<const simulate::Lowered> lowered_;
};

// The index build that the task asks for; needs no replay. UserError where the model has fewer KV heads.
result::Result build_index(const Task& task);

}  // namespace kvcast::study
