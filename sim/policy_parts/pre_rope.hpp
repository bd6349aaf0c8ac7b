// Keys before rotary position embedding. A trace contains keys after it; rotating them back is exact up to single
// precision if the frequencies are known.
#pragma once

#include <vector>

#include "trace/trace.hpp"

namespace kvcast::policy {

// Frequencies of the trace's model if configs/models has it (including its scaling), otherwise those of the trace's
// rope_theta without scaling. Throws UserError if the head dimension is odd.
std::vector<double> trace_frequencies(const trace::TraceInfo& info);

// Copies of rows at positions first, first + 1, ..., rotated back.
std::vector<float> turned_back(const trace::TraceInfo& info, const MatrixView& rows, std::int64_t first);

// [tokens × head_dim]: keys 0 … tokens − 1 of a KV head, rotated back.
std::vector<float> keys_before_rope(const trace::Layer& layer, int kv_head, std::int64_t tokens);

}  // namespace kvcast::policy
