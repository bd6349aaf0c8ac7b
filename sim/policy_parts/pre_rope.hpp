// Keys as they were before rotary position embedding. A trace holds them after it; turning them back is exact, up to
// single precision, where the frequencies are known.
#pragma once

#include <vector>

#include "trace/trace.hpp"

namespace kvcast::policy {

// Frequencies of the trace's model where configs/models has it (its scaling included), else of the trace's rope_theta
// without scaling. UserError where the head dimension is odd.
std::vector<double> trace_frequencies(const trace::TraceInfo& info);

// Copies of rows at positions first, first + 1, ..., turned back.
std::vector<float> turned_back(const trace::TraceInfo& info, const MatrixView& rows, std::int64_t first);

// [tokens × head_dim]: keys 0 … tokens − 1 of a KV head, turned back.
std::vector<float> keys_before_rope(const trace::Layer& layer, int kv_head, std::int64_t tokens);

}  // namespace kvcast::policy
