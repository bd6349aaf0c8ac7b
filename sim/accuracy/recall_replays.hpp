// Replays that predicted scores are computed from: many policies over a few sample traces, results kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "accuracy/sample_trace.hpp"
#include "config/run.hpp"
#include "replay/target_recall.hpp"

namespace kvcast::accuracy {

class RecallReplays {
 public:
  // Results are read from and appended to the file `cache` where it is not empty: one JSON object a line. An ablation,
  // where there is one, changes all recipes and must outlive the object.
  RecallReplays(std::string cache, int threads, const Ablation* ablation = nullptr);

  // Requests a replay; the same one may be requested any number of times.
  void request(const TraceRequest& trace, const config::PolicyChoice& policy);
  // Makes all that was requested and is not there. `advance` is called after each replay, from any thread.
  void run(const std::function<void(std::int64_t done, std::int64_t total)>& advance);
  // UserError with the policy's or the trace's own words where the replay was refused.
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

  std::string cache_;
  int threads_;
  const Ablation* ablation_;
  std::map<TraceRequest, Requested> requested_;
  std::mutex results_mutex_;
  std::map<std::string, Outcome> results_;
  mutable std::map<std::string, std::string> hashes_;  // of recipes
};

}  // namespace kvcast::accuracy
