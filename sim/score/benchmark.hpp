// Predicted scores of policies on whole benchmarks, from the same replays and score model that are validated against
// published tables.
//
// A score is the equal-weight mean over the benchmark's tasks of the share of the uncompressed model's score. Replays
// are shared: one trace serves all policies that need the same heads of it, and no trace is made twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "result/result.hpp"
#include "score/published_method.hpp"
#include "score/recall_replays.hpp"
#include "score/score_table.hpp"
#include "score/task_replay.hpp"
#include "score/task_score.hpp"

namespace kvcast::score {

// Traces per task.
inline constexpr int kBenchmarkSeeds = 2;

struct Benchmark {
  std::string name;
  std::map<std::string, TaskSpec> tasks;
  // A hash of its tasks, their recipes and the generator's version. Scores also depend on the score model, the model
  // and the policy.
  std::string identity;
};
// Finds ruler, longbench, niah or scbench in configs/accuracy/tasks.yaml, or reads a file of one benchmark's tasks.
// Throws UserError with the location if the name is unknown, listing the known ones, or a file is invalid.
Benchmark find_benchmark(const Catalogue& catalogue, const config::ScoreChoice& choice);

// A policy on a model at the prompt length of a run.
struct BenchmarkRequest {
  config::PolicyChoice policy;
  std::string model;               // a name under configs/models, or a path
  std::int64_t prompt_tokens = 0;  // of the run
  config::ScoreChoice choice;
  config::CacheFormat cache = config::Precision::kBf16;  // of the run's deployment
};

// The policy's name and parameters with the files that it names resolved and without parameters that leave layers
// uncompressed. Policies of equal text have equal scores.
std::string policy_text(const config::PolicyChoice& policy);

// The lengths out of 4K, 8K, ..., 128K that the model supports, or its longest one if that is shorter than all of them.
std::vector<std::int64_t> stated_contexts(const config::Model& model);

// The one of these lengths that is nearest in ratio to the run's prompt.
std::int64_t stated_context(std::int64_t prompt_tokens, const config::Model& model);

// Defines the replay of a policy on a task in a run whose prompts are `stated` tokens long. Throws UserError if the
// policy cannot be replayed.
TaskReplay replay_of(const BenchmarkRequest& request, const TaskSpec& task, const config::Model& model,
                     std::int64_t stated);

// The mean of the tasks' predictions, of whose errors the share `common` is the same for all tasks. Its tasks are
// sorted, lowest first.
result::BenchmarkScore mean_score(const std::string& benchmark, std::vector<result::BenchmarkTask> tasks,
                                  double common);

class BenchmarkScores {
 public:
  // `cache`: a file of replays, see RecallReplays; empty: none. `model` must outlive the object. `table`: scores that
  // need no replay; may be null.
  BenchmarkScores(const ScoreModel& model, const ScoreTable* table, std::string cache, int threads);

  // The same score may be requested any number of times. Throws UserError if the choice of a benchmark is invalid; the
  // refusal of a policy that cannot be replayed is thrown by score().
  void request(const BenchmarkRequest& request);
  // Returns whether the score is known without a replay.
  bool is_known(const BenchmarkRequest& request) const;
  // Computes all requested scores that are missing. `advance` is called after each replay, from any thread. Throws
  // Cancelled.
  void run(const std::function<void(std::int64_t done, std::int64_t total)>& advance, const Cancel& cancel = {});
  // The score of a request that was run, from published rows and the simulation unless the choice excludes evidence
  // (evidence/estimator.hpp). Throws UserError with the policy's or the trace's own message if it cannot be predicted.
  result::BenchmarkScore score(const BenchmarkRequest& request) const;

  // The score as a row of a table; empty if it was refused or is the uncompressed model's.
  std::optional<ScoreRow> row_of(const BenchmarkRequest& request) const;
  // The `made_with` of rows that are valid for this program's generator and configuration.
  std::string made_with(const Benchmark& benchmark, const config::Model& model) const;

 private:
  struct Requested {
    BenchmarkRequest request;
    Benchmark benchmark;
    config::Model model;
    std::int64_t stated = 0, context = 0;  // context: 0 if all tasks have lengths of their own
    std::set<std::string> whole;           // tasks whose prompts the policy keeps whole
    std::vector<std::pair<std::string, TaskReplay>> tasks;
  };
  using Outcome = std::variant<result::BenchmarkScore, UserError>;
  std::string key_of(const BenchmarkRequest& request) const;
  Requested look_up(const BenchmarkRequest& request) const;
  void plan(Requested& requested);
  std::optional<result::BenchmarkScore> known_score(const Requested& requested) const;
  std::string basis_of(const Requested& requested) const;
  result::BenchmarkTask task_score_of(const std::string& name, const TaskReplay& replay) const;
  result::BenchmarkScore score_of(const Requested& requested) const;
  // The mean of the tasks, those whose prompts the policy keeps whole with the uncompressed model's score.
  result::BenchmarkScore simulated_score(const Requested& requested, std::vector<result::BenchmarkTask> tasks,
                                         std::string origin) const;
  result::BenchmarkScore with_evidence(const Requested& requested, const result::BenchmarkScore& simulated) const;

  const ScoreModel& model_;
  const ScoreTable* table_;
  RecallReplays replays_;
  std::map<std::string, Requested> requested_;               // by key
  std::map<std::string, Outcome> scores_;                    // by key; from the simulation
  std::map<std::string, result::BenchmarkScore> estimated_;  // by key; with evidence
  mutable std::map<std::string, Benchmark> benchmarks_;      // by name as the request writes it
};

}  // namespace kvcast::score
