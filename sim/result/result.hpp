// One experiment's result as plain data: what was simulated, its numbers, and what they are based on. Everything that
// reads results (text, JSON, CSV, the store, reports, claims of papers, findings) reads this struct through the table
// of metrics (result/metric.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/interval.hpp"
#include "base/origin.hpp"
#include "result/experiment.hpp"

namespace kvcast::result {

enum class Status { kOk, kOom, kFailed };
std::string_view status_name(Status status);  // "ok", "oom", "failed"
std::optional<Status> status_from_name(std::string_view name);

using SettingValue = std::variant<bool, std::int64_t, double, std::string>;

// One key of the configuration with names and defaults resolved.
struct Setting {
  std::string key;  // dotted: "policy.budget"
  SettingValue value;
  bool operator==(const Setting&) const = default;
};
// As a user would write it: "4096", "adaptive", "true".
std::string text_of(const SettingValue& value);
// Numbers and texts that are numbers as a whole.
std::optional<double> number_of(const SettingValue& value);
// Reads what text_of() wrote: true and false, integers, numbers; anything else is a text.
SettingValue setting_value(const std::string& text);

// The simulated experiment: its policy, model, machine and settings.
struct Subject {
  std::string name;  // of the run, may be empty
  std::string model, hardware, host;
  std::string policy, policy_category;
  std::string trace;  // "recipe needle, seed 1", the path of a file, or several: "needle 1, local 2"
  std::int64_t prompt_tokens = 0, decode_tokens = 0;
  std::int64_t batch = 0;  // sequences
  // Every resolved key, sorted. Holds the values above as well: "model", "policy.name", "workload.batch".
  std::vector<Setting> settings;
  // The values that set the experiment apart in its sweep, in the sweep's order.
  std::vector<std::pair<std::string, std::string>> swept;

  const SettingValue* find(std::string_view key) const;  // null where the experiment has no such key
  std::optional<double> number(std::string_view key) const;
  std::string text(std::string_view key) const;  // empty where the experiment has no such key
};

// A predicted task score as a share of the uncompressed model's.
struct TaskScore {
  std::string task;  // as the trace names it
  bool known =
      false;  // described under configs/accuracy; else it counts as one whose answer must be right token by token
  double share_of_full = 0;
  Interval interval;
  int steps = 0;  // decode steps that have targets
  double recall_mean = 0, recall_min = 0, other_recall = 0;
  std::string source;  // of the score model
};

struct BenchmarkTask {
  std::string task;
  double share_of_full = 0;
  Interval interval;
  double full = 100;  // points that an uncompressed model typically scores: the task's weight in the mean
  // What the simulator alone says, where published rows moved the share.
  std::optional<double> simulated = {};
};

// The predicted mean score over a benchmark's tasks as a share of the uncompressed model's: of what that scores in each
// task, the share that is kept.
struct BenchmarkScore {
  std::string benchmark;
  std::int64_t context = 0;  // tokens of the replayed prompts as tables state them; 0: each task has its own
  double share_of_full = 0;
  Interval interval;
  std::vector<BenchmarkTask> tasks;  // lowest first
  std::string rests_on;              // in words: replays, seeds, context, link
};

// How close a policy's attention is to full attention; see replay::Proxies.
struct Accuracy {
  double recall_mass_mean = 0, recall_mass_p10 = 0;
  double output_error_mean = 0, topk_overlap_mean = 0;
  double attended_mean = 0;  // tokens
  // Sparse prompt attention: share of the causal pairs that is computed, and the attention mass on them.
  std::optional<double> prompt_density, prompt_recall_mass_mean;
  Origin origin = Origin::kAssumed;  // exact for captured traces; a synthetic trace only stands for a model
  std::optional<TaskScore> task;     // where the trace has a task
};

struct Result;

// Another outcome under a shifted amount of memory: another largest batch, or an experiment that fits or no longer
// does.
struct Alternative {
  std::string source;
  std::shared_ptr<const Result> longer, shorter;  // less memory, more memory; null: as it is
};

struct Result {
  std::string key;  // content hash of all inputs; empty for what is not stored
  Subject subject;
  Status status = Status::kOk;
  std::string error;  // of kFailed: why the experiment was refused
  Experiment experiment;
  std::optional<IndexBuild> build;  // an index build by itself: then the experiment is empty
  Accuracy accuracy;
  std::optional<BenchmarkScore> benchmark;  // where one was wanted and can be predicted; ...
  std::string benchmark_refused;            // ... why it cannot
  std::vector<Alternative> alternatives;    // where effects on memory were requested
  double wall_s = 0;                        // CPU-side time that the simulation took

  // Whether the experiment has times: it ran and fits.
  bool has_times() const { return status == Status::kOk && !build; }
};

// A number of a machine that results depend on.
struct MachineNumber {
  std::string key;              // "gpu.hbm_bandwidth"
  std::optional<double> value;  // in the base unit; nothing for a curve
  std::string unit;             // "bytes/s"; empty for plain numbers
  Origin origin = Origin::kAssumed;
  double uncertainty = 0;  // relative half-width
  std::string source;
};

enum class Direction { kLonger, kShorter };
// The result with the costs of one source longer or shorter, at the same batch. A source that does not move the result
// leaves it as it is. Spans of the timeline, effects and alternatives are left out.
Result shifted(const Result& result, const std::string& source, Direction direction);
// The effects with the farthest reach on a decode step first, whichever way that is.
std::vector<Effect> by_reach(std::vector<Effect> effects);
// Sources whose shift changes something.
std::vector<std::string> sources_of(const Result& result);

}  // namespace kvcast::result
