// Replays from which scores are predicted: many policies over a few sample traces, with results kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "replay/target_recall.hpp"
#include "score/sample_trace.hpp"

namespace kvcast::score {

class RecallReplays {
 public:
  // Results are read from and appended to the file `cache`, unless it is empty: one JSON object per line. The change
  // applies to all recipes.
  RecallReplays(std::string cache, int threads, RecipeChange change = {});

  // Requests a replay; the same one may be requested any number of times.
  void request(const TraceRequest& trace, const config::PolicyChoice& policy);
  // Runs all requested replays whose results are missing. `advance` is called after each replay, from any thread.
  // Throws Cancelled; the replays that were finished before are kept.
  void run(const std::function<void(std::int64_t done, std::int64_t total)>& advance, const Cancel& cancel = {});
  bool has(const TraceRequest& trace, const config::PolicyChoice& policy) const;
  // Throws UserError with the policy's or the trace's own message if the replay was refused.
  const replay::TargetRecall& recall(const TraceRequest& trace, const config::PolicyChoice& policy) const;

 private:
  friend class SampleWork;
  struct Outcome {
    replay::TargetRecall recall;
    std::string refused;
  };
  struct Requested {
    TraceRequest trace;
    std::map<std::string, config::PolicyChoice> policies;  // by key
  };
  void load_cache();
  void keep(const std::string& key, Outcome outcome);
  std::string key_of(const TraceRequest& trace, const config::PolicyChoice& policy) const;
  const std::string& recipe_hash(const std::string& recipe) const;
  const std::string& model_key(const std::string& model) const;

  std::string cache_;
  int threads_;
  RecipeChange change_;
  std::map<TraceRequest, Requested> requested_;
  std::mutex results_mutex_;
  std::map<std::string, Outcome> results_;
  mutable std::map<std::string, std::string> hashes_, models_;  // by recipe, by model
};

}  // namespace kvcast::score
