// One row per metric, in the order in which pages and columns list them. Families (a row for each operation kind)
// follow their totals.
#include "result/metric_rows.hpp"

#include <fmt/format.h>

#include "graph/op.hpp"

namespace kvcast::result {
namespace {

using Row = std::vector<Metric>;
using enum Unit;
using enum Better;
using enum Basis;

constexpr Display kMs{"ms", 1e3, ",.3r"}, kS{"s", 1, ",.3r"}, kGb{"GB", 1e-9, ",.3r"}, kMb{"MB", 1e-6, ",.3r"};
constexpr Display kPercent{"%", 100, ".1f"}, kCountAs{"", 1, ",.4r"};

// A plain field of the experiment's times: absent if the experiment has none.
template <auto Member>
double* time_field(Result& r, int) {
  return r.has_times() ? &(r.experiment.*Member) : nullptr;
}
template <auto Member>
double* traffic_field(Result& r, int) {
  return r.has_times() ? &(r.experiment.traffic.*Member) : nullptr;
}
// The peak of a run that does not fit would be that of what was allocated before.
template <auto Pool, auto Member>
double* pool_field(Result& r, int) {
  const bool known = Member == &PoolUse::capacity ? r.status != Status::kFailed && !r.build : r.has_times();
  return known ? &(r.experiment.*Pool.*Member) : nullptr;
}
template <auto Pool>
const PoolUse& pool_of(const Result& r) {
  return r.experiment.*Pool;
}
template <auto Member>
double* accuracy_field(Result& r, int) {
  return r.status == Status::kFailed || r.build ? nullptr : &(r.accuracy.*Member);
}
template <auto Member>
double* optional_accuracy(Result& r, int) {
  return r.accuracy.*Member ? &*(r.accuracy.*Member) : nullptr;
}
template <auto Time, auto Member>
double* part_field(Result& r, int kind) {
  return r.has_times() ? &(r.experiment.*Time.*Member)[static_cast<std::size_t>(kind)] : nullptr;
}
template <auto Time>
double* idle_field(Result& r, int) {
  return r.has_times() ? &(r.experiment.*Time).idle : nullptr;
}
template <auto Member>
double* score_field(Result& r, int) {
  return r.accuracy.task ? &(*r.accuracy.task.*Member) : nullptr;
}
template <auto Member>
double* build_part(Result& r, int kind) {
  return r.build ? &(r.build->time.*Member)[static_cast<std::size_t>(kind)] : nullptr;
}

// Sum of copies in both directions.
template <auto Member>
std::optional<double> of_transfers(const Result& r, int) {
  if (!r.has_times()) return {};
  const auto& seconds = r.experiment.step.*Member;
  return seconds[static_cast<std::size_t>(graph::Kind::kCopyIn)] +
         seconds[static_cast<std::size_t>(graph::Kind::kCopyOut)];
}

// Prompt tokens of a sequence of the batch. A service has one beside it, whose prompts differ from its requests' mean.
double batch_prompt(const Result& r) {
  return r.subject.number("workload.prompt_tokens").value_or(static_cast<double>(r.subject.prompt_tokens));
}

// Costs of input and output tokens by themselves, as providers price them.
void add_phase_costs(Row& rows) {
  constexpr double kMillion = 1e6;
  rows.push_back({"decode.cost_per_million_tokens",
                  "decode_cost",
                  kMoney,
                  kLower,
                  kStepTime,
                  "Decode cost per million output tokens",
                  "",
                  "Price of the time in which a million tokens are generated while decoding, without their prompts, in "
                  "the currency of price_per_hour; only if the run states a price.",
                  {"", 1, ",.3r"},
                  nullptr,
                  [](const Result& r, int) { return price_of(r, kMillion / r.experiment.tokens_per_s); }});
  rows.push_back({"prefill.cost_per_million_tokens",
                  "prefill_cost",
                  kMoney,
                  kLower,
                  kPrefillTime,
                  "Prefill cost per million input tokens",
                  "",
                  "Price of the time in which a million tokens of prompts are read, in the currency of price_per_hour; "
                  "only if the run states a price.",
                  {"", 1, ",.3r"},
                  nullptr,
                  [](const Result& r, int) {
                    const double tokens = static_cast<double>(r.subject.batch) * batch_prompt(r);
                    return price_of(r, r.experiment.ttft_s / tokens * kMillion);
                  }});
}

void add_times(Row& rows) {
  using E = Experiment;
  rows.push_back({"decode.tokens_per_s",
                  "tps",
                  kTokensPerSecond,
                  kHigher,
                  kStepTime,
                  "Decode throughput",
                  "tokens/s",
                  "Tokens generated per second by the whole batch while decoding.",
                  {"tokens/s", 1, ",.4r"},
                  time_field<&E::tokens_per_s>});
  rows.push_back(
      {"decode.tpot_s.mean", "tpot", kSeconds, kLower, kStepTime, "Time per output token, mean", "TPOT",
       "Mean time of a decode step, integrated over the contexts from the first to the last generated token.", kMs,
       time_field<&E::tpot_mean_s>});
  rows.push_back({"decode.tpot_s.p50", "tpot_p50", kSeconds, kLower, kStepTime, "Time per output token, median", "",
                  "Median time of the simulated decode steps.", kMs, time_field<&E::tpot_p50_s>});
  rows.push_back({"decode.tpot_s.p99", "tpot_p99", kSeconds, kLower, kStepTime,
                  "Time per output token, 99th percentile", "", "99th percentile of the simulated decode steps.", kMs,
                  time_field<&E::tpot_p99_s>});
  rows.push_back({"prefill.ttft_s", "ttft", kSeconds, kLower, kPrefillTime, "Time to first token of the whole batch",
                  "TTFT",
                  "Time from the start of the prefill until the first token of the last prompt of the batch is on the "
                  "host.",
                  kS, time_field<&E::ttft_s>});
  rows.push_back({"transfer.exposed_s", "exposed", kSeconds, kLower, kStepPart, "Exposed transfers per step",
                  "exposed transfers", "Time of a decode step in which it waits for copies between host and GPU.", kMs,
                  nullptr, of_transfers<&metrics::Attribution::exposed>});
  rows.push_back({"transfer.hidden_s", "hidden", kSeconds, kNeither, kStepPart, "Hidden transfers per step", "",
                  "Time of copies between host and GPU that overlaps with other work of a decode step.", kMs, nullptr,
                  of_transfers<&metrics::Attribution::hidden>});
  rows.push_back({"build.seconds", "build", kSeconds, kLower, kBuildTime, "Time to build the index", "",
                  "Time from the first host call until the host knows that the index of one layer is built.", kMs,
                  [](Result& r, int) -> double* { return r.build ? &r.build->seconds : nullptr; }});
}

void add_accuracy(Row& rows) {
  using A = Accuracy;
  rows.push_back(
      {"accuracy.recall_mass_mean", "recall", kShare, kHigher, kReplay, "Attention mass kept, mean", "mass kept",
       "Share of the full softmax mass on the attended tokens, mean over layers, replayed steps and query heads.",
       kPercent, accuracy_field<&A::recall_mass_mean>});
  rows.push_back({"accuracy.recall_mass_p10", "recall_p10", kShare, kHigher, kReplay,
                  "Attention mass kept, 10th percentile", "",
                  "10th percentile over layers, steps and query heads of the attention mass kept.", kPercent,
                  accuracy_field<&A::recall_mass_p10>});
  rows.push_back({"accuracy.topk_overlap_mean", "topk_overlap", kShare, kHigher, kReplay,
                  "Overlap with the exact top-k", "",
                  "Share of the attended tokens that are in the exact top-k, with k the number of attended tokens.",
                  kPercent, accuracy_field<&A::topk_overlap_mean>});
  rows.push_back({"accuracy.output_error_mean", "output_error", kShare, kLower, kReplay,
                  "Relative error of the attention output", "",
                  "L2 norm of the difference between sparse and full attention outputs over the norm of the full one.",
                  kPercent, accuracy_field<&A::output_error_mean>});
  rows.push_back({"accuracy.task.share_of_full", "predicted", kShare, kHigher, kTaskScore,
                  "Predicted task score, share of full KV", "task score",
                  "Predicted score of the trace's task as a share of the uncompressed model's score.", kPercent,
                  score_field<&TaskScore::share_of_full>});
  rows.push_back({"accuracy.attended_mean",
                  "attended",
                  kTokens,
                  kNeither,
                  kReplay,
                  "Attended tokens per head, mean",
                  "",
                  "Tokens that attention reads, mean over layers, replayed steps and query heads.",
                  {"tokens", 1, ",.4r"},
                  accuracy_field<&A::attended_mean>});
  rows.push_back({"accuracy.distinct_mean",
                  "distinct",
                  kTokens,
                  kNeither,
                  kReplay,
                  "Different tokens attended to per head, mean",
                  "",
                  "Tokens that a head attends to in at least one replayed step, mean over layers and query heads: with "
                  "exact_topk, the union of the top-k over the steps.",
                  {"tokens", 1, ",.4r"},
                  accuracy_field<&A::distinct_mean>});
  rows.push_back({"accuracy.corrected_share", "corrected", kShare, kNeither, kReplay, "Share of heads that wait", "",
                  "Share of layers, replayed steps and query heads in which the step waited for pages of its own "
                  "selection: FreeKV's rate of corrections.",
                  kPercent, accuracy_field<&A::corrected_share>});
  rows.push_back({"accuracy.prompt_density", "prompt_density", kShare, kNeither, kReplay,
                  "Density of the prompt's attention", "",
                  "Share of the causal pairs that sparse prompt attention computes, mean over all layers.", kPercent,
                  optional_accuracy<&A::prompt_density>});
  rows.push_back({"accuracy.prompt_recall_mass_mean", "prompt_recall", kShare, kHigher, kReplay,
                  "Attention mass kept in the prompt", "",
                  "Share of the full softmax mass that sparse prompt attention keeps, mean over all layers.", kPercent,
                  optional_accuracy<&A::prompt_recall_mass_mean>});
}

void add_scores(Row& rows) {
  rows.push_back(
      {"score.share_of_full", "score", kShare, kHigher, kBenchmark, "Predicted benchmark score, share of full KV",
       "score", "Predicted mean score over the tasks of a benchmark as a share of the uncompressed model's.", kPercent,
       [](Result& r, int) -> double* { return r.benchmark ? &r.benchmark->share_of_full : nullptr; }});
}

void add_memory(Row& rows) {
  using E = Experiment;
  using P = PoolUse;
  rows.push_back(
      {"memory.hbm_peak_bytes", "hbm", kBytes, kLower, kPeakMemory, "HBM peak", "HBM peak",
       "Largest amount of GPU memory in use, reserved memory not counted; none for a run that does not fit, see oom.",
       kGb, pool_field<&E::hbm, &P::peak>});
  rows.push_back(
      {"memory.hbm_capacity_bytes", "hbm_capacity", kBytes, kNeither, kCapacity, "HBM capacity", "",
       "GPU memory that weights, caches and activations can use: capacity less what is reserved; under a serving "
       "engine, what its own rules leave them (`framework.scheduler.memory_utilization`).",
       kGb, pool_field<&E::hbm, &P::capacity>, nullptr, 0, nullptr, pool_of<&E::hbm>});
  rows.push_back({"memory.decode_hbm_peak_bytes", "decode_hbm", kBytes, kLower, kDecodeMemory,
                  "HBM peak while decoding", "", "Largest amount of GPU memory in use while decoding.", kGb,
                  pool_field<&E::decode_hbm, &P::peak>});
  rows.push_back({"memory.dram_peak_bytes", "dram", kBytes, kLower, kExact, "Pinned host DRAM peak", "",
                  "Largest amount of pinned host memory in use.", kGb, pool_field<&E::dram, &P::peak>});
  rows.push_back({"memory.dram_capacity_bytes", "dram_capacity", kBytes, kNeither, kCapacity,
                  "Pinned host DRAM capacity", "", "Host memory that may be pinned.", kGb,
                  pool_field<&E::dram, &P::capacity>, nullptr, 0, nullptr, pool_of<&E::dram>});
}

void add_traffic(Row& rows) {
  using T = graph::ByteCounts;
  rows.push_back({"traffic.hbm_read_bytes", "hbm_read", kBytes, kLower, kTraffic, "HBM reads per step", "",
                  "Bytes that kernels of a decode step read from GPU memory.", kGb, traffic_field<&T::hbm_read>});
  rows.push_back({"traffic.hbm_write_bytes", "hbm_write", kBytes, kLower, kTraffic, "HBM writes per step", "",
                  "Bytes that kernels of a decode step write to GPU memory.", kMb, traffic_field<&T::hbm_write>});
  rows.push_back({"traffic.kv_read_bytes", "kv_read", kBytes, kLower, kTraffic, "KV reads per step", "",
                  "Part of the HBM reads of a decode step: KV pairs that attention reads.", kGb,
                  traffic_field<&T::kv_read>});
  rows.push_back({"traffic.h2d_bytes", "h2d", kBytes, kLower, kTraffic, "Host to device per step", "",
                  "Bytes that a decode step copies from the host to the GPU.", kMb, traffic_field<&T::h2d>});
  rows.push_back({"traffic.h2d_pieces", "h2d_pieces", kCount, kLower, kTraffic, "Pieces from host to device per step",
                  "", "Contiguous pieces in which a decode step's bytes arrive from the host.", kCountAs,
                  traffic_field<&T::h2d_pieces>});
  rows.push_back({"traffic.d2h_bytes", "d2h", kBytes, kLower, kTraffic, "Device to host per step", "",
                  "Bytes that a decode step copies from the GPU to the host.", kMb, traffic_field<&T::d2h>});
  rows.push_back({"traffic.cpu_dram_bytes", "cpu_dram", kBytes, kLower, kTraffic,
                  "Host DRAM reads by CPU threads per step", "",
                  "Bytes that CPU workers read from host memory in a decode step.", kMb, traffic_field<&T::cpu_dram>});
}

struct Phase {
  const char* prefix;  // prefix of paths and aliases
  const char* label;
  Basis basis;
  double* (*exposed)(Result&, int);
  double* (*hidden)(Result&, int);
};

void add_kinds(Row& rows) {
  using M = metrics::Attribution;
  static const Phase phases[] = {
      {"decode", "a decode step", kStepPart, part_field<&Experiment::step, &M::exposed>,
       part_field<&Experiment::step, &M::hidden>},
      {"prefill", "the prefill", kPrefillPart, part_field<&Experiment::prefill, &M::exposed>,
       part_field<&Experiment::prefill, &M::hidden>},
      {"build", "an index build", kBuildPart, build_part<&M::exposed>, build_part<&M::hidden>}};
  for (const Phase& phase : phases) {
    const bool decodes = phase.basis == kStepPart;
    for (int k = 0; k < graph::kKindCount; ++k) {
      const auto kind = static_cast<graph::Kind>(k);
      if (kind == graph::Kind::kMarker) continue;
      const auto add = [&](const char* part, const char* meaning, Better better, double* (*field)(Result&, int)) {
        const std::string name = fmt::format("{}.{}", part, graph::kind_name(kind));
        rows.push_back(
            {fmt::format("{}.{}_s.{}", phase.prefix, part, graph::kind_name(kind)),
             decodes ? name : fmt::format("{}.{}", phase.prefix, name), kSeconds, better, phase.basis,
             fmt::format("{} time of {}", meaning, graph::kind_name(kind)), "",
             fmt::format("{} time of operations of kind {} in {}.", meaning, graph::kind_name(kind), phase.label), kMs,
             field, nullptr, k});
      };
      add("exposed", "Exposed", kLower, phase.exposed);
      add("hidden", "Hidden", kNeither, phase.hidden);
    }
  }
  rows.push_back({"decode.idle_s", "idle", kSeconds, kLower, kStepPart, "Idle time per step", "",
                  "Time of a decode step that no operation explains.", kMs, idle_field<&Experiment::step>});
  rows.push_back({"prefill.idle_s", "prefill.idle", kSeconds, kLower, kPrefillPart, "Idle time of the prefill", "",
                  "Time of the prefill that no operation explains.", kMs, idle_field<&Experiment::prefill>});
}

void add_program(Row& rows) {
  rows.push_back(
      {"engine.ops", "", kCount, kNeither, kProgram, "Simulated operations", "",
       "Operations that the event engine ran for this experiment.", kCountAs, nullptr,
       [](const Result& r, int) -> std::optional<double> { return static_cast<double>(r.experiment.engine_ops); }});
  rows.push_back(
      {"engine.events", "", kCount, kNeither, kProgram, "Simulated events", "",
       "Events that the engine processed: ends of latencies and of operations.", kCountAs, nullptr,
       [](const Result& r, int) -> std::optional<double> { return static_cast<double>(r.experiment.engine_events); }});
  rows.push_back({"engine.wall_s", "", kSeconds, kNeither, kProgram, "Wall time of the engine", "",
                  "Wall time that the event engine took for this experiment.", kMs,
                  [](Result& r, int) -> double* { return &r.experiment.engine_wall_s; }});
}

}  // namespace

std::vector<Metric> metric_rows() {
  Row rows;
  add_service_rows(rows);
  add_request_rows(rows);
  add_times(rows);
  add_phase_costs(rows);
  add_accuracy(rows);
  add_scores(rows);
  add_memory(rows);
  add_traffic(rows);
  add_kinds(rows);
  add_program(rows);
  return rows;
}

}  // namespace kvcast::result
