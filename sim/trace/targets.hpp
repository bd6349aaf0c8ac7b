// The `targets` of a trace: which positions each decode step must be able to attend to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace kvcast::trace {

// One list of positions a decode step; empty where a step needs none. As JSON: [[p, ...], ...].
using Targets = std::vector<std::vector<std::int64_t>>;

// Of a trace; all lists empty where it has none. UserError where they are not one list a decode step of positions that
// the step may attend to.
Targets read_targets(const TraceInfo& info);

std::string targets_json(const Targets& targets);

}  // namespace kvcast::trace
