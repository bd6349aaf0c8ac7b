// A scheme: how a layer gets from appended keys to its attention output, on streams and threads of its own if the
// modelled system has them.
#pragma once

#include <memory>

#include "cuda/attention.cuh"
#include "pipeline/dense.hpp"

namespace kvcast::kernels {

class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual AppendTo append_to(int step, int layer) = 0;
  // [batch][q heads][dim]
  virtual Half* query(int step, int layer) = 0;
  // Queued on `main` after the query and the appended rows; returns the output [batch][q heads][dim]. May wait for the
  // device.
  virtual const Half* attend(Stream& main, int step, int layer) = 0;
  // Waits for work that still runs on other streams.
  virtual void finish() {}
  // Compares the last layer's output of the last step with plain attention over the same selection.
  virtual void check(State& state) = 0;
};

// Launch mode of kernels: one by one, or a step as one CUDA graph, for schemes that queue all work on the main stream
// and never wait for the device.
enum class Launches { kSingle, kGraph };

// Runs steps of the scheme: checks it, or measures calls of shape.steps steps. UsageError, or a skip, comes before.
void run_scheme(State& state, const PipelineShape& shape, const std::function<std::unique_ptr<Scheme>()>& make,
                Launches launches = Launches::kSingle);

// The counts of a step's selection, for each KV head of a sequence; in tokens unless said otherwise. Inputs of the
// simulator's prediction.
struct PipelineCounts {
  double attended = 0, scored = 0 /* units */, candidates = 0, fetched = 0, fetched_runs = 0 /* pieces */;
  double cpu_attended = 0;
  double corrected_heads = 0;  // per sequence, in the first step of each call
};
void state_counts(State& state, const PipelineCounts& counts);

// Skips if the device or the host has no room; bytes in addition to the weights.
bool too_large_pipeline(State& state, const PipelineShape& shape, double device_bytes, double host_bytes);

// The benchmark of a scheme: the model's axes, then its own, and for checks a small model.
Bench pipeline_bench(std::string name, std::string about, std::vector<Axis> axes, std::vector<Axis> check_axes,
                     void (*run)(State&));

// Compares an output with the reference: rows of keys and values of (sequence, query head) from `rows`.
using AttendedRows =
    std::function<void(int sequence, int kv_head, std::vector<float>& keys, std::vector<float>& values)>;
void compare_output(State& state, const PipelineShape& s, const Half* query, const Half* out, const AttendedRows& rows);

}  // namespace kvcast::kernels
