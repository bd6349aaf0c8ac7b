// The texts of `kvcast trace info` and `kvcast trace check`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "trace/trace.hpp"

namespace kvcast::trace {

// Shape, positions, metadata, and attention statistics of the heads of each captured layer (loads them one by one).
nlohmann::json trace_info(const Trace& trace, int threads);
// The same as text for people.
std::string trace_info_text(const nlohmann::json& info);

// The model under configs/models that the trace names; nothing if there is none.
std::optional<config::Model> named_model(const TraceInfo& info);

struct TraceFault {
  enum class Severity { kError, kWarning };
  Severity severity = Severity::kWarning;
  std::string where;  // tensor, metadata key or head
  std::string what;
};

// Problems found in a readable trace. Errors, such as numbers that are not finite or targets and turns out of range,
// prevent its replay. Warnings are unusual values: zero or constant keys, keys to which RoPE seems not to have been
// applied, queries that see nothing near them, targets to which no head attends. Empty: nothing found.
std::vector<TraceFault> check_trace(const Trace& trace, int threads);
// Opens the file first; an exception of open_trace becomes an error, unused tensors a warning.
std::vector<TraceFault> check_trace_file(const std::string& path, int threads);

bool has_errors(const std::vector<TraceFault>& findings);
nlohmann::json findings_json(const std::vector<TraceFault>& findings);
std::string findings_text(const std::vector<TraceFault>& findings);

}  // namespace kvcast::trace
