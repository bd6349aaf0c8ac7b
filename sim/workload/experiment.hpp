// One experiment: prefill and decode of a batch under a policy on a machine, from counts of a replay to predictions.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "config/run.hpp"
#include "graph/traffic.hpp"
#include "hardware/terms.hpp"
#include "lower/decode.hpp"
#include "metrics/attribution.hpp"
#include "policy/policy.hpp"
#include "replay/draw.hpp"
#include "replay/replay.hpp"

namespace kvcast::workload {

struct OwnedBytes {
  std::string owner;
  double bytes = 0;
};

struct OutOfMemory {
  std::string pool;    // "hbm", "dram"
  std::string moment;  // "prefill, layer 3", "decode at 33280 tokens"
  double requested = 0, in_use = 0, capacity = 0;
  std::vector<OwnedBytes> owners;  // most first
  std::string requested_for;       // owner of the request: "activations"
};

struct PoolUse {
  double capacity = 0, peak = 0;
  std::vector<OwnedBytes> owners;  // at the peak
};

struct TimelineSpan {
  std::string lane, kind, label;
  int layer = -1;
  double start_s = 0, duration_s = 0;
};

// What becomes of an experiment's times where the costs of one source take longer, and shorter, by their uncertainty;
// or where the trace's layers and steps are as unlike all of the run's as a sample of their number may be.
inline constexpr const char* kSampleOfTrace = "trace";
struct Effect {
  struct Times {
    double step = 1, prefill = 1;  // how many times as long
  };
  std::string source;  // as the profile writes it, or kSampleOfTrace
  Times longer, shorter;
};

struct Experiment {
  std::optional<OutOfMemory> oom;  // where set, times are absent
  double ttft_s = 0;
  double tpot_mean_s = 0, tpot_p50_s = 0, tpot_p99_s = 0;
  double tokens_per_s = 0;  // of the batch, decoding
  PoolUse hbm, dram;
  PoolUse decode_hbm;         // the same of hbm while decoding alone
  graph::Traffic traffic;     // a decode step
  metrics::Attribution step;  // a decode step: seconds by kind, bound, origin
  metrics::Attribution prefill;
  std::vector<TimelineSpan> timeline;  // of one step, where asked for
  // Where predict() was asked (workload/shifted.hpp): what the times' intervals and sensitivities follow from.
  std::optional<std::vector<Effect>> effects;
  std::int64_t engine_ops = 0, engine_events = 0;
  double engine_wall_s = 0;
};

struct ExperimentOptions {
  bool timeline = false;                 // keep the spans of one decode step
  std::ostream* chrome_trace = nullptr;  // write the middle decode window as a Chrome trace
  hardware::Shift shift;                 // costs of one source longer or shorter
  bool prefill = true, decode = true;    // what is run; times of the other stay 0
};

// What an experiment is made of; refers to objects that outlive the call.
struct ExperimentInput {
  const config::Run* run = nullptr;
  const policy::Policy* policy = nullptr;
  const replay::ReplayResult* replay = nullptr;
};

// The draw by which the replay's layers and steps stand for the run's: the same in every command.
replay::Draw draw_counts(const ExperimentInput& input);
// What lowering needs of the input. Counts come from `draw`, which must outlive the setting.
lower::DecodeSetting decode_setting(const ExperimentInput& input, replay::Draw& draw);

Experiment run_experiment(const ExperimentInput& input, const ExperimentOptions& options);

// The record that `run --json` prints and the store keeps.
nlohmann::json to_json(const Experiment& experiment, const ExperimentInput& input);

// Every number of the machine with its origin, uncertainty and source: [{what, origin, uncertainty, source}].
nlohmann::json rests_on(const config::Hardware& hardware);

}  // namespace kvcast::workload
