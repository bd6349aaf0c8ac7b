// The `targets` of a trace: the positions that each decode step must be able to attend to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace kvcast::trace {

// A query head that puts less than this share of its attention on the targets, in the mean over the steps that have
// some, does not retrieve.
inline constexpr double kRetrieves = 0.05;

// One list of positions per decode step; empty if a step needs none. As JSON: [[p, ...], ...].
using Targets = std::vector<std::vector<std::int64_t>>;

// Returns the targets of a trace, each list ascending and without repetitions; all are empty if it has none. Throws
// UserError unless they are one list per decode step of positions that the step may attend to.
Targets read_targets(const TraceInfo& info);

std::string targets_json(const Targets& targets);

}  // namespace kvcast::trace
