// Replays that predicted scores rest on: many policies over a few traces, each trace made once, results kept.
//
// A trace holds a sample of a model's heads, not all of them: policies that treat each KV head by itself are replayed
// over a layer that is rich in retrieving heads, the others ("coupled": they share a budget or a choice between heads)
// over layers with heads of all kinds in their usual shares.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "config/run.hpp"
#include "replay/target_recall.hpp"
#include "trace/recipe.hpp"

namespace kvcast::accuracy {

struct TraceRequest {
  std::string recipe;  // a name under traces/recipes
  std::string model;   // a name under configs/models
  std::int64_t prompt_tokens = 0;
  int steps = 0;
  std::uint64_t seed = 1;
  bool coupled = false;
  bool whole_prompt = false;  // all prompt queries captured
  int window = 0;             // else so many of the last ones; 0: as many as the recipe says
  bool later_turn = false;    // the prompt's last question asked for something else of the kind
  auto operator<=>(const TraceRequest&) const = default;
};

struct Ablation;  // accuracy/ablation.hpp

class Laboratory {
 public:
  // Results are read from and appended to `cache` where it is not empty: one JSON object a line. An ablation, where
  // there is one, changes all recipes and must outlive the laboratory.
  Laboratory(std::string cache, int threads, const Ablation* ablation = nullptr);

  // Asks for a replay; the same one may be asked for any number of times.
  void want(const TraceRequest& trace, const config::PolicyChoice& policy);
  // Does all that was asked for and is not there. `advance` is called after each replay, from any thread.
  void run(const std::function<void(std::int64_t done, std::int64_t total)>& advance);
  // UserError with the policy's or trace's own words where the replay was refused.
  const replay::TargetRecall& result(const TraceRequest& trace, const config::PolicyChoice& policy) const;

 private:
  struct Outcome {
    replay::TargetRecall recall;
    std::string refused;
  };
  struct Wanted {
    TraceRequest trace;
    std::map<std::string, config::PolicyChoice> policies;  // by key
  };
  void load_cache();
  void keep(const std::string& key, Outcome outcome);
  void run_trace(const Wanted& wanted, const std::function<void()>& advance);
  void refuse(const Wanted& wanted, const std::string& why, const std::function<void()>& advance);
  trace::Recipe recipe_of(const std::string& name) const;

  std::string key_of(const TraceRequest& trace, const config::PolicyChoice& policy) const;
  const std::string& recipe_hash(const std::string& recipe) const;

  std::string cache_;
  int threads_;
  const Ablation* ablation_;
  std::map<TraceRequest, Wanted> wanted_;
  std::map<std::string, Outcome> results_;
  mutable std::map<std::string, std::string> hashes_;  // of recipes
};

}  // namespace kvcast::accuracy
