// One experiment's result as plain data: the simulated configuration, its numbers, and their origins. Everything that
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
#include "policy/category.hpp"
#include "result/experiment.hpp"
#include "serving/summary.hpp"

namespace kvcast::result {

// The outcome of serving requests that come and go.
struct Service {
  serving::Summary summary;
  bool served = true;             // some request was completed; otherwise there are no times and rates
  double kv_capacity_tokens = 0;  // tokens of the uncompressed cache that fit in the pool
  double link_busy_share = 0;     // of the duration, the host's link at its rate from host to device
  // Standard deviation of a mean time of requests over other draws of as many requests, as a share of it, and the
  // number of requests with which it would be 2 %; 0 for a trace, which is not drawn.
  double sampling_error = 0, enough_requests = 0;
  Origin origin = Origin::kExact;  // of the passes' times and of the pool
};

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
// Formats a value as a user would write it: "4096", "adaptive", "true".
std::string text_of(const SettingValue& value);
// Returns numbers, and texts that are entirely a number.
std::optional<double> number_of(const SettingValue& value);
// Reads what text_of() wrote: true and false, integers, numbers; anything else is a text.
SettingValue setting_value(const std::string& text);

// The simulated experiment: its policy, model, machine and settings.
struct Subject {
  std::string name;  // of the run; may be empty
  std::string model, hardware, host;
  std::string policy;
  policy::Category category = policy::Category::kNone;  // of the policy
  std::string trace;  // "recipe needle, seed 1", the path of a file, or several: "needle 1, local 2"
  std::int64_t prompt_tokens = 0, decode_tokens = 0;  // of a sequence; the mean if prompts differ
  std::int64_t batch = 0;                             // sequences
  // Every resolved key, sorted. Includes the values above: "model", "policy.name", "workload.batch".
  std::vector<Setting> settings;
  // The values that distinguish the experiment in its sweep, in the sweep's order.
  std::vector<std::pair<std::string, std::string>> swept;

  // Returns whether its policy is the uncompressed cache.
  bool uncompressed() const { return category == policy::Category::kNone; }
  const SettingValue* find(std::string_view key) const;  // null if the experiment has no such key
  std::optional<double> number(std::string_view key) const;
  std::string text(std::string_view key) const;  // empty if the experiment has no such key
};

// A predicted task score as a share of the uncompressed model's.
struct TaskScore {
  std::string task;  // as the trace names it
  bool known =
      // described under configs/accuracy; if not, it is scored as a task whose answer must be right token by token
      false;
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
  double full = 100;  // score that an uncompressed model typically reaches, in points: the task's weight in the mean
  // The simulator's share before published rows adjusted it.
  std::optional<double> simulated = {};
};

// The predicted mean score over a benchmark's tasks as a share of the uncompressed model's: the kept shares of the
// tasks, weighted by the uncompressed model's scores.
struct BenchmarkScore {
  std::string benchmark;
  std::int64_t context = 0;  // tokens of the replayed prompts as tables state them; 0: each task has its own
  double share_of_full = 0;
  Interval interval;
  std::vector<BenchmarkTask> tasks;  // lowest first
  std::string origin;                // in words: replays, seeds, context, score model
};

// One replayed layer by KV head, by query head if the policy selects for each in all layers. Means over the steps, and
// over the query heads of a KV head.
struct LayerMap {
  int layer = 0;
  std::vector<double> attended;     // tokens that a step attends to
  std::vector<double> resident;     // tokens on the GPU after the prompt
  std::vector<double> recall_mass;  // share of the softmax mass on the attended tokens
};
// A map of fewer layers would show which layers were replayed, not how layers differ.
inline constexpr int kMappedLayers = 4;

// Similarity of a policy's attention to full attention; see replay::Proxies.
struct Accuracy {
  double recall_mass_mean = 0, recall_mass_p10 = 0;
  double output_error_mean = 0, topk_overlap_mean = 0;
  double attended_mean = 0, distinct_mean = 0;  // tokens
  double corrected_share = 0;
  // Sparse prompt attention: share of the causal pairs that is computed, and the attention mass on them.
  std::optional<double> prompt_density, prompt_recall_mass_mean;
  Origin origin = Origin::kAssumed;   // exact for captured traces; a synthetic trace only represents a model
  std::optional<TaskScore> task;      // if the trace has a task; ...
  std::string task_refused;           // ... otherwise why one with targets has no score; not stored
  std::vector<LayerMap> layers = {};  // if at least kMappedLayers layers are replayed
};

struct Result;

// The 80 % interval of a number on another text, from its spread over the traces of a run.
struct TextInterval {
  std::string metric;  // its path
  Interval interval;
};

// The outcome under a shifted amount of memory: another largest batch, or an experiment that fits or no longer does.
struct Alternative {
  std::string source;
  std::shared_ptr<const Result> longer, shorter;  // less memory, more memory; null: unchanged
};

struct Result {
  std::string key;  // content hash of all inputs; empty for results that are not stored
  Subject subject;
  Status status = Status::kOk;
  std::string error;  // for kFailed: why the experiment was rejected
  Experiment experiment;
  // Present if the run has traffic; the experiment is then a batch of mean requests, at the mean number that ran.
  std::optional<Service> service;
  std::optional<IndexBuild> build;  // an index build by itself; the experiment is then empty
  Accuracy accuracy;
  std::vector<TextInterval> by_text;        // of replayed numbers that differ between the traces of a run
  std::optional<BenchmarkScore> benchmark;  // if one was requested and can be predicted; ...
  std::string benchmark_refused;            // ... otherwise the reason why it cannot
  std::vector<Alternative> alternatives;    // if effects on memory were requested
  bool borderline = false;                  // whether more or less memory, within its uncertainty, decides if it fits
  double wall_s = 0;                        // CPU-side time of the simulation

  // Returns whether it is one batch, from its prompts to its last tokens.
  bool is_batch() const { return has_times() && !service; }
  // Returns whether the experiment has times: it ran and fits.
  bool has_times() const { return status == Status::kOk && !build; }
};

// The fit of an experiment in memory. Borderline: it would be the opposite with another capacity, or other
// activations, within their uncertainty.
enum class MemoryFit { kFits, kBorderline, kDoesNotFit };
MemoryFit fit_of(const Result& result);    // of one that was not rejected
std::string_view fit_name(MemoryFit fit);  // "fits", "borderline", "does not fit"

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
// Returns the result with the costs of one source longer or shorter, at the same batch. A source that does not move the
// result leaves it unchanged. Spans of the timeline, effects and alternatives are left out.
Result shifted(const Result& result, const std::string& source, Direction direction);
// Sorts effects by their largest change of a decode step, in either direction, largest first.
std::vector<Effect> by_reach(std::vector<Effect> effects);
// Returns the sources whose shift changes something.
std::vector<std::string> sources_of(const Result& result);

}  // namespace kvcast::result
