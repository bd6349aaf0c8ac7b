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
  bool at_most = false;  // "<=" and "<", else ">=" and ">"
  bool strict = false;   // "<" and ">"
  double limit = 0;      // in the metric's unit

  bool holds_for(double value) const;
};

// Which value of a result a target is held against: the prediction, or the worse or better end of its interval.
enum class Reading { kNominal, kCertain, kPossible };

// The metric of that name. UserError with the names of those that are not parts by operation kind.
const result::Metric& metric_named(const std::string& name, const SourceLocation& where);

// A map from metrics (paths or aliases) to texts. UserError for an unknown metric, another relation, and a quantity of
// another unit.
std::vector<Target> read_targets(const config::Node& map);

// "TPOT <= 50 ms".
std::string target_text(const Target& target);

// The first target that the result misses, in words: "decode.tpot_s.p99 <= 50 ms" or, where it does not fit, the pool
// ("hbm"). Nothing where it meets all. A metric that the result does not have is missed.
std::optional<std::string> missed(const result::Result& result, const std::vector<Target>& targets,
                                  Reading reading = Reading::kNominal);

}  // namespace kvcast::plan
