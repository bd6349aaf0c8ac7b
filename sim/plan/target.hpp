// Targets that a result must meet: `decode.tpot_s.p99: "<= 50 ms"`, `score: ">= 95 %"`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/yaml.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

struct Target {
  const result::Metric* metric = nullptr;
  bool at_most = false;       // "<=" and "<"; otherwise ">=" and ">"
  bool strict = false;        // "<" and ">"
  double limit = 0;           // in the metric's unit
  SourceLocation where = {};  // unknown for the floor on the score

  bool holds_for(double value) const;
};

// The value of a result that a target is compared with: the prediction, or the worse or better end of its interval.
enum class Certainty { kNominal, kCertain, kPossible };

// Returns the metric of that name. Throws UserError with the names of those that are not parts by operation kind.
const result::Metric& metric_named(const std::string& name, const SourceLocation& where);

// A regular expression (ECMA 262) of the texts that read_targets accepts for the metric.
std::string target_pattern(const result::Metric& metric);

// Reads a map from metrics (paths or aliases) to texts. Throws UserError for an unknown metric, another relation, and a
// quantity of another unit.
std::vector<Target> read_targets(const config::Node& map);

// A limit on a benchmark score, which does not depend on times.
inline bool is_of_score(const Target& target) { return target.metric->basis == result::Basis::kBenchmark; }

// "TPOT <= 50 ms".
std::string target_text(const Target& target);
// The same of several, separated by commas; empty if there are none.
std::string target_text(const std::vector<Target>& targets);

// Describes the first target that the result misses: "decode.tpot_s.p99 <= 50 ms" or, if it does not fit, the pool
// ("hbm"). Returns nothing if it meets all. A metric that the result does not have counts as missed, with the reason:
// "no predicted score: ...". A service whose queue grows meets no target on its requests.
std::optional<std::string> missed(const result::Result& result, const std::vector<Target>& targets,
                                  Certainty reading = Certainty::kNominal);

// Explains why a result that fits does not have the metric, and what to set: "no price is stated: set
// `price_per_hour`". Returns nothing if it has it, does not fit or was rejected.
std::optional<std::string> why_missing(const result::Result& result, const result::Metric& metric);
// Throws UserError with that explanation: "decode.cost_per_million_tokens: quest has none: ...".
void require_number(const result::Result& result, const result::Metric& metric, const std::string& whose,
                    const SourceLocation& where);
// The same for each target's metric, except for a score that cannot be predicted: missed() gives the reason.
void require_numbers(const result::Result& result, const std::vector<Target>& targets, const std::string& whose);

// The memory of a pool that missed() names: "GPU memory" for "hbm"; empty for the text of a target.
std::string memory_name(const std::string& missed);

// Factor by which the result keeps its targets, that of the target which it keeps least: 2 for half of a largest time
// or twice a least throughput, below 1 for a target that is missed. 0 if it does not fit in memory or lacks a metric.
double margin(const result::Result& result, const std::vector<Target>& targets,
              Certainty reading = Certainty::kNominal);

}  // namespace kvcast::plan
