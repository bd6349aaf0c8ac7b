// One experiment as plain structs, and the sweep that expands into many.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/hardware.hpp"
#include "config/model.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// A policy by name with its parameters still as written: the policy room knows which exist and what they mean.
struct PolicyChoice {
  std::string name;
  Node parameters;  // a map without `name`
  SourceLocation where;
};

struct Workload {
  std::int64_t prompt_tokens = 32768;
  std::int64_t decode_tokens = 512;
  int batch = 1;
  std::int64_t prefill_chunk = 0;  // tokens a chunk; 0: the whole prompt at once
};

// Where attention comes from: a recipe under traces/recipes made at the workload's context, or a file.
struct TraceChoice {
  std::string recipe;  // empty where file is set
  std::uint64_t seed = 1;
  int layers = 2;   // captured layers
  int steps = 16;   // captured decode steps
  std::string file;
};

// How the serving framework runs the model: what the host does between kernels.
struct Framework {
  enum class Launch { kCudaGraph, kCompiled, kEager };
  Launch launch = Launch::kCudaGraph;
  bool expand_kv_heads = false;   // K and V repeated to all query heads before attention (gpt-fast)
  bool quadratic_mask = false;    // a boolean S×S mask kept on the GPU (gpt-fast)
  int warmup_steps = 10;          // dropped before the steady state is measured
  int measured_steps = 10;
  int sampled_contexts = 3;       // contexts at which decode is simulated, integrated over the decode length
};

struct Run {
  Model model;
  Hardware hardware;
  PolicyChoice policy;
  Workload workload;
  TraceChoice trace;
  Framework framework;
  Node source;  // the whole config, all --set applied, names not resolved
};

// Reads a run; `model:`, `hardware:` are names under configs/ or paths. UserError for anything odd.
Run read_run(const Node& config);

// One point of a sweep: the run's config and the values that set it apart.
struct SweepPoint {
  Node config;
  std::vector<std::pair<std::string, std::string>> values;  // dotted key, value as text; in the order of the sweep section
};

// Pure expansion of `sweep:`: lists under dotted or nested keys form a grid; lists under `zip:` advance together (each a
// list of maps, or maps of equally long lists) and form one axis of the grid. Maps as values set several keys at once.
// The first axis varies slowest. Duplicate points are refused. A config without `sweep:` is one point.
std::vector<SweepPoint> expand_sweep(const Node& config);

// Finds configs/<folder>/<name>.yaml from the working directory, then from the source tree; a name with '/' or ending in
// .yaml is a path. UserError lists the names that exist. Also resolves aliases of models and hardware.
std::string find_config(const std::string& folder, const std::string& name, const SourceLocation& asked_at);

Model read_model(const std::string& path);

}  // namespace kvcast::config
