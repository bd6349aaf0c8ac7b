// A layer as an engine with a quantised cache holds it: keys and values rounded to the cache's format and back.
#pragma once

#include <memory>
#include <span>

#include "config/precision.hpp"
#include "trace/trace.hpp"

namespace kvcast::replay {

// Keys or values of one head and token, in place. kFp8: E4M3 with scale 1, as vLLM keeps it without calibration; kInt8
// and kInt4: between the smallest and the largest of them, evenly (LMDeploy). kBf16: nothing, traces being captured in
// it. Aborts for formats of weights alone.
void round_cached(config::Precision precision, std::span<float> row);

// A copy of the layer with rounded keys and values; queries are as they were.
std::unique_ptr<trace::Layer> with_rounded_cache(const trace::Layer& layer, config::Precision precision, int threads);

}  // namespace kvcast::replay
