// One experiment as plain structs, and the sweep that expands into many.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/deployment.hpp"
#include "config/find.hpp"
#include "config/framework.hpp"
#include "config/hardware.hpp"
#include "config/model.hpp"
#include "config/shape.hpp"
#include "config/speculation.hpp"
#include "config/traffic.hpp"
#include "config/workload.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// A policy by name with its parameters as written: the policy module knows which exist and what they mean.
struct PolicyChoice {
  std::string name;
  Node parameters;          // a map without `name`
  SourceLocation where;     // of the choice
  SourceLocation named_at;  // of the name, in the file if a file is chosen
};

// Reads `NAME`, `FILE.yaml`, `{name: NAME, budget: 512, ...}` or `{file: FILE.yaml, budget: 512, ...}`. A name found
// under configs/policies selects that file, any other is passed on as a policy's own name; a file contains `name` and
// parameters, and may contain `description` and `source`. Keys written next to `name` or `file` override the file.
PolicyChoice read_policy(const Node& choice);

// The source of attention: a recipe under traces/recipes generated at the workload's context, or a file. The defaults
// apply to keys that a trace leaves out; a run that names no trace uses default_traces().
struct TraceChoice {
  std::string recipe = "needle";  // empty if file is set
  std::uint64_t seed = 1;
  int layers = 2;                    // captured layers
  int steps = 16;                    // captured decode steps
  int window = 0;                    // last prompt queries captured; 0: the recipe's default
  std::optional<double> depth = {};  // share of the haystack before the needle; nothing: drawn
  std::string file;
  std::int64_t prompt_tokens = 0;  // of the replayed prompt; 0: those of the workload
  SourceLocation where;            // location of the recipe's or the file's name
};

// The traces of a run that writes neither `trace:` nor `traces:`: three kinds of text, so that no single text decides.
std::vector<TraceChoice> default_traces();

// Benchmarks that configs/accuracy/tasks.yaml lists.
inline constexpr const char* kBenchmarks[] = {"RULER", "LongBench", "NIAH", "SCBench"};

// The benchmark whose predicted score decides whether a policy keeps enough, and the threshold.
struct ScoreChoice {
  static constexpr const char* kNone = "none";
  std::string benchmark = "ruler";  // as configs/accuracy/tasks.yaml names it, a file of the same form, or kNone
  double floor = 0.95;              // minimum share of the uncompressed model's score
  bool evidence = true;             // adjust the simulated score by published rows
  bool requested = false;           // written in the config rather than the default
  SourceLocation where;             // location of the benchmark's name
};

// A cost that a policy's budget is solved for, instead of a given budget. The definitions are in configs/README.md.
struct MatchChoice {
  enum class Quantity { kBytesRead, kTokensAttended, kBytesResident };
  Quantity quantity = Quantity::kTokensAttended;
  double value = 0;      // bytes or tokens
  SourceLocation where;  // location of the value
};
// Returns the quantity as a config writes it: "bytes_read".
const char* quantity_name(MatchChoice::Quantity quantity);

struct Run {
  std::string name, description;  // free text for reports; may be empty
  Model model;                    // with the precisions of the deployment
  Deployment deployment;
  std::optional<Speculation> speculation;
  Hardware hardware;
  PolicyChoice policy;
  // A request of mean lengths and a batch of one if the run has traffic.
  Workload workload;
  std::optional<Traffic> traffic;
  SchedulerRules scheduler;         // the framework's rules, and with traffic the run's own
  std::vector<TraceChoice> traces;  // all traces that the run is replayed on; at least one, all different
  ScoreChoice score;
  std::optional<MatchChoice> match;  // if set, the policy's budget is not written and still to be solved for
  Framework framework;
  std::optional<double> price_per_hour;  // per GPU with its share of the host, in any currency
  Node source;                           // the whole config, all --set applied, names not resolved
};

// Replaces a budget that is written as a share (`budget: 20 %`) by that share of the prompt's tokens, rounded, at least
// one.
void resolve_budget(PolicyChoice& policy, std::int64_t prompt_tokens);

// Reads `score:` of a configuration: a map, or a benchmark's name alone.
ScoreChoice read_score(const Node& node);

// Reads a run; `model:` and `hardware:` as in read_model and read_hardware; everything except these
// two and `policy:` has a default. Throws UserError for invalid input, including a context beyond the model's.
Run read_run(const Node& config);
// Returns a note on a run whose price_per_hour names other machines alone; empty for all other runs.
std::string unpriced_text(const Run& run);
// The keys of a run ("run") and of its maps ("workload", "trace", "match", "score", "framework").
Shapes run_shapes();

// Returns the run with this budget instead of `match:`.
Node with_budget(const Node& config, std::int64_t budget);

// One point of a sweep: the run's config and the values that distinguish it.
struct SweepPoint {
  Node config;
  std::vector<std::pair<std::string, std::string>>
      values;  // dotted key, value as text; in the order of the sweep section
};

// Expands `sweep:` without opening any file. A config without `sweep:` is one point.
//
//   sweep:
//     policy.budget: [256, 512]                # an axis: a list under a dotted key,
//     workload: {batch: [1, 4]}                # or under nested keys
//     policy: [{name: quest, page: 32}, full]  # a map as value sets several keys at once
//     zip:                                     # advance together: one axis
//       workload.prompt_tokens: [16384, 32768]
//       hardware: [a100-40gb-pcie4, h100-sxm]
//     cases:                                   # one axis: the points of each case one after the other,
//       - policy: {name: quest}                # a case being a sweep of its own
//         policy.budget: [256, 512]
//       - policy: full                         # in which single values are allowed as well
//
// `zip:` may also be a list of maps: [{workload.batch: 1, model: a}, {workload.batch: 4, model: b}].
// The axes form a grid; the first one in the section varies slowest. A map with `name` or `file` under `policy`, with
// `like` under `model`, `hardware` or `hardware.host`, `config` under `model`, or with `file` under `trace`, replaces
// the existing value, because other policies have other parameters; any other map is merged in. Throws UserError for an
// empty list, lists of different length under `zip:`, a key that two axes set, equal points (naming both), and more
// than a million points.
std::vector<SweepPoint> expand_sweep(const Node& config);

}  // namespace kvcast::config
