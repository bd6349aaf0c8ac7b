// What `kvcast trace info` and `kvcast trace check` say of a trace.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace kvcast::trace {

// Shape, positions, metadata, and how the heads of each captured layer attend (loads them one by one).
nlohmann::json trace_info(const Trace& trace, int threads);
// The same for people.
std::string trace_info_text(const nlohmann::json& info);

struct Finding {
  enum class Severity { kError, kWarning };
  Severity severity = Severity::kWarning;
  std::string where;  // tensor, metadata key or head
  std::string what;
};

// What is wrong (error: results would mean nothing) or odd (warning) in a trace that could be opened: broken numbers,
// targets and turns out of range, zero or constant keys, keys that look as if RoPE had not been applied, queries that
// see nothing near them. Empty: nothing found.
std::vector<Finding> check_trace(const Trace& trace, int threads);
// Opens the file first; what open_trace refuses becomes an error, tensors that nobody reads a warning.
std::vector<Finding> check_trace_file(const std::string& path, int threads);

bool has_errors(const std::vector<Finding>& findings);
nlohmann::json findings_json(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);

}  // namespace kvcast::trace
