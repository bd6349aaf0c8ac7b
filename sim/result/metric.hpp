// The table of metrics: every number of a result, once. Text output, JSON, CSV and store columns, the report's measures
// and labels, names in formulas and the reference for users are made from it. A new metric is one row in
// metric_rows.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.hpp"
#include "base/origin.hpp"
#include "result/result.hpp"

namespace kvcast::result {

enum class Better { kHigher, kLower, kNeither };
std::string_view better_name(Better better);  // "higher", "lower", "neither"

// Units of stored values. Shares are fractions of 1.
enum class Unit { kSeconds, kBytes, kTokensPerSecond, kRequestsPerSecond, kTokens, kShare, kCount, kMoney };
std::string_view unit_name(Unit unit);  // "s", "bytes", "tokens/s", "requests/s", "tokens", "share", "count", "money"

// The inputs that a number is computed from. They decide its origin, its interval and which shifted costs move it.
enum class Basis {
  kStepTime,  // a time of decoding
  kStepPart,  // a part of a decode step's time
  kPrefillTime,
  kPrefillPart,
  kRequestTime,  // a sum of times of the prefill and of decode steps
  kBuildTime,
  kBuildPart,
  kServing,       // a queue of requests: times of passes, memory, and the requests that were drawn
  kCapacity,      // of a pool of memory
  kPeakMemory,    // HBM at the peak: activations are estimates
  kDecodeMemory,  // HBM at the peak of decoding
  kExact,         // follows from shapes
  kTraffic,       // follows from shapes and what was selected on the replayed traces
  kReplay,        // how the replayed selections compare with full attention
  kTaskScore,
  kBenchmark,
  kProgram,  // about the simulation itself
};

// Format of a value on pages and in tables: value · scale in `unit`, by a d3 number format.
struct Display {
  const char* unit = "";
  double scale = 1;
  const char* format = ",.3r";
};

struct Metric {
  std::string path;   // in `run --json`, columns and formulas: "decode.tpot_s.mean"
  std::string alias;  // short name in formulas and charts: "tpot"; may be empty
  Unit unit = Unit::kCount;
  Better better = Better::kNeither;
  Basis basis = Basis::kExact;
  std::string label;       // "Time per output token, mean"
  std::string brief;       // heading of a table's column; empty: not in short tables
  std::string definition;  // one sentence
  Display display;
  // The value in a result; null if the result does not have it. The store writes through the non-const form.
  double* (*field)(Result& result, int which) = nullptr;
  // Used instead for a value that is derived from other fields.
  std::optional<double> (*derived)(const Result& result, int which) = nullptr;
  int which = 0;  // for a family: the operation kind
  // Share of the time that is prefill, for a metric with Basis::kRequestTime; the rest is decode steps.
  double (*prefill_share)(const Result& result) = nullptr;
  // The pool, for a metric with Basis::kCapacity.
  const PoolUse& (*capacity_of)(const Result& result) = nullptr;
};

// The label within a sentence: "time per output token", "HBM peak".
std::string label_in_sentence(const Metric& metric);

std::span<const Metric> all_metrics();
// Finds a metric by path or alias; null if there is none.
const Metric* find_metric(std::string_view name);

std::optional<double> value(const Result& result, const Metric& metric);
Origin origin(const Result& result, const Metric& metric);
// The 80 % uncertainty interval. Nothing for numbers that have none because they are exact or are never shifted.
std::optional<Interval> interval(const Result& result, const Metric& metric);
// Factor by which shifted costs multiply the metric: a time's own factor, a throughput's inverse; 1 for all others.
double time_factor(const Result& result, const Metric& metric, const ShiftedTimes& shifted);
// Share of the metric's time that is prefill, from 0 to 1; nothing if the metric is no time or rate of both phases.
std::optional<double> prefill_share(const Result& result, const Metric& metric);
// Returns whether the metric is a time of the prefill.
bool is_of_prefill(const Metric& metric);
// Returns whether interval() can return an interval.
bool has_interval(const Metric& metric);

// A number by its name in formulas: the path or alias of a metric, "fits" (1 if the experiment fits in memory, else 0),
// "batch", "config.KEY", and bytes by owner: "hbm_of.OWNER" (during decode), "dram_of.OWNER"; in KIND and OWNER every
// character other than a letter or digit is written _. Kinds and owners without time or bytes are 0. Returns nothing if
// the result has no such number, such as a time of an experiment that does not fit.
std::optional<double> number_named(const Result& result, const std::string& name);
// The same with the costs of one source longer or shorter. An alternative that does not fit only has the number "fits".
std::optional<double> number_shifted(const Result& result, const std::string& source, Direction direction,
                                     const std::string& name);
// Returns whether a name is valid in formulas; owners cannot be checked.
bool is_number_name(const std::string& name);

// Value and unit for people: "12.3 ms", "1.7 GB", "95.2 %", "1,050 tokens/s".
std::string format_value(const Metric& metric, double value);

// Shared by several writers of results.
// the resource that the critical path spends most time on
std::string_view bottleneck(const metrics::Attribution& time);
// The worst origin of at least a twentieth of the time: a sliver of an assumed cost does not determine the whole.
Origin origin_of(const metrics::Attribution& time);
// Returns whether an owner's bytes are estimates: activations and attention scores.
bool is_temporary(const std::string& owner);
// Bytes of such owners at the peak.
double temporary_bytes(const PoolUse& use);
// Low and high of a pool's peak within the uncertainty of activations and attention scores; both are the peak itself
// without these.
Interval peak_interval(const PoolUse& use);
double peak_shifted(const PoolUse& use, Direction direction);

}  // namespace kvcast::result
