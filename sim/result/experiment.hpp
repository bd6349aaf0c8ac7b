// The outcome of simulating one experiment: times, memory, traffic, and the sensitivity of the times to uncertain
// costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/origin.hpp"
#include "graph/traffic.hpp"
#include "metrics/attribution.hpp"

namespace kvcast::result {

struct OwnedBytes {
  std::string owner;  // "weights", "KV cache"
  double bytes = 0;
};

// The first allocation that did not fit.
struct OutOfMemory {
  std::string pool;                                // "hbm" or "dram"
  std::string moment;                              // "prefill, layer 3", "decode at 33280 tokens"
  double requested = 0, in_use = 0, capacity = 0;  // bytes
  std::vector<OwnedBytes> owners;                  // bytes in use at that moment, largest first
  std::string requested_for;                       // owner of the request: "activations"
};

struct PoolUse {
  double capacity = 0, peak = 0;   // bytes
  std::vector<OwnedBytes> owners;  // bytes at the peak, largest first
  double capacity_spread = 0;      // half-width of the capacity's interval, bytes
  Origin capacity_origin = Origin::kExact;
  double uncounted = 0;  // largest number of bytes that may be in use in addition
};

// One operation of a decode step, seconds from the start of the step.
struct TimelineSpan {
  std::string lane, kind, label;
  int layer = -1;
  double start_s = 0, duration_s = 0;
  std::optional<double> bytes;    // bytes of a copy
  std::optional<int> waited_for;  // index in the timeline: the operation on another lane whose end let this one start
};

// Times relative to those with all costs as stated: factors.
struct ShiftedTimes {
  double step = 1, prefill = 1, build = 1;  // factors
  // The attribution of a decode step, of the prefill and of an index build; only if detailed effects were requested.
  std::optional<metrics::Attribution> step_parts, prefill_parts, build_parts;
};

// Sensitivity of the times to one cost source, shifted up and down by its uncertainty.
struct Effect {
  std::string source;             // as the machine's profile states it, or kTraceSample
  std::vector<std::string> keys;  // numbers of the machine that have this source, or {kTraceSample}
  ShiftedTimes longer, shorter;
};

// The sampling error of the replay: the spread across the replayed layers, steps and traces.
inline constexpr const char* kTraceSample = "trace";
// Source of memory effects: activations and attention scores are estimates.
inline constexpr const char* kTemporaries = "activations";
// Half-width of the uncertainty of activations and attention scores, as a share. An assumption for lack of
// measurements: which operands are live at once depends on the framework, and its allocator keeps freed blocks.
inline constexpr double kTemporarySpread = 0.4;
// Share of a peak by which frameworks that launch operators one by one may use more: results of operators that are live
// together for a moment, and blocks of PyTorch's allocator that are larger than what they hold. Published peaks of
// transformers are up to 12 % above the tensors that are counted.
inline constexpr double kUncountedUnfused = 0.12;

// The times on one of several traces, in their order, used to compare experiments on the same traces text by text.
struct TraceTimes {
  double step_s = 0, prefill_s = 0;
  // Half-widths of ln(time) due to the sampled layers and steps of the trace.
  double step_spread = 0, prefill_spread = 0;
};

struct Experiment {
  std::optional<OutOfMemory> oom;  // if set, times are absent
  double ttft_s = 0;               // of the last prompt of the batch
  double first_ttft_s = 0;         // of the prompts that are read first
  double tpot_mean_s = 0, tpot_p50_s = 0, tpot_p99_s = 0;
  double tokens_per_s = 0;  // of the whole batch during decode
  PoolUse hbm, dram;
  PoolUse decode_hbm;         // HBM during decode
  graph::ByteCounts traffic;  // bytes of one decode step
  metrics::Attribution step;  // one decode step, mean over the sampled contexts; adds up to tpot_mean_s
  metrics::Attribution prefill;
  std::vector<TimelineSpan> timeline;  // one decode step, if requested
  std::vector<Effect> effects;         // if requested; in no particular order
  std::vector<TraceTimes> by_trace;    // for a run on several traces; otherwise empty
  // Work that decode steps leave unfinished was still growing after the warm-up steps: more of them are needed.
  bool unsettled = false;
  std::int64_t engine_ops = 0, engine_events = 0;
  double engine_wall_s = 0;
};

// The index build of one layer by itself, as papers measure it separately from whole prefills.
struct IndexBuild {
  double seconds = 0;         // from the first host call until the host knows that all is done
  metrics::Attribution time;  // attribution of these seconds
  std::vector<Effect> effects;
};

}  // namespace kvcast::result
