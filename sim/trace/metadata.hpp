// The `__metadata__` of a trace file: strings in the file, a TraceInfo here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace kvcast::trace {

inline constexpr const char* kTraceFormat = "kvcast-trace/1";

// Reads all members except query_positions and hidden. Throws UserError naming the file and the key that is missing,
// malformed or out of range.
TraceInfo read_metadata(const std::map<std::string, std::string>& metadata, const std::string& file);

// Returns the first positions of a conversation's turns, ascending; none if the file names none. Throws UserError if
// they are something else.
std::vector<std::int64_t> turns_of(const TraceInfo& info);

// Writes them; numbers in their shortest exact form.
std::map<std::string, std::string> write_metadata(const TraceInfo& info);

}  // namespace kvcast::trace
