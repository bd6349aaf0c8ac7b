// The `__metadata__` of a trace file: strings in the file, a TraceInfo here.
#pragma once

#include <map>
#include <string>

#include "trace/trace.hpp"

namespace kvcast::trace {

inline constexpr const char* kTraceFormat = "kvcast-trace/1";

// All but query_positions and hidden. UserError names the file and the key that is missing, malformed or out of range.
TraceInfo read_metadata(const std::map<std::string, std::string>& metadata, const std::string& file);

// The reverse; numbers in their shortest exact form.
std::map<std::string, std::string> write_metadata(const TraceInfo& info);

}  // namespace kvcast::trace
