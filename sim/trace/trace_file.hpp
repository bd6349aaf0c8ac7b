// Trace files: the safetensors layout with the tensors and metadata that traces/README.md describes.
#pragma once

#include <memory>
#include <string>

#include "trace/dtype.hpp"
#include "trace/safetensors.hpp"
#include "trace/trace.hpp"

namespace kvcast::trace {

// Same as open_trace, for a file that is already mapped (or in memory).
std::unique_ptr<Trace> open_trace(SafetensorsFile file);

// Writes a trace layer by layer, the numbers as F16, BF16 or F32. Throws UserError if the file cannot be written or a
// value does not fit the type.
void write_trace(const std::string& path, const Trace& trace, Dtype dtype, int threads);

}  // namespace kvcast::trace
