// A layer as an engine with a quantised cache stores it: keys and values rounded to the cache's format and back.
#pragma once

#include <memory>
#include <span>

#include "config/precision.hpp"
#include "trace/trace.hpp"

namespace kvcast::replay {

// Rounds keys or values of one head and token in place. kFp8: E4M3 with scale 1, as vLLM uses without calibration;
// kInt8, kInt4 and kInt3: evenly between their minimum and maximum (LMDeploy). kCodebook4 and kCodebook3: the numbers
// of the row as a unit vector, rotated by a Hadamard matrix, to the nearest of 16 or 8 that are best for normal ones
// (Lloyd-Max); as a unit vector again, times the row's length in half precision (TurboQuant in vLLM). kNvfp4: E2M1 with
// an E4M3 scale per 16 numbers and no other scale; kMxfp4: E2M1 with a power of two per 32 (OCP Microscaling 1.0).
// kBf16: no change, because traces are captured in it.
void round_cached(config::Precision precision, std::span<float> row);

// Returns a copy of the layer with rounded keys and values; queries are unchanged.
std::unique_ptr<trace::Layer> with_rounded_cache(const trace::Layer& layer, config::CacheFormat format, int threads);

}  // namespace kvcast::replay
