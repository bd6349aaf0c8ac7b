// The attention that every prompt token receives. It is the most expensive sum of a replay: n²·d multiplications for n
// tokens of d dimensions.
#pragma once

#include <span>

#include "base/cancel.hpp"
#include "base/matrix.hpp"
#include "base/simd.hpp"

namespace kvcast {

// sums[j] += Σ_{i ≥ j} softmax_j(scale · q_i·k_j over j ≤ i): sums over the queries of causal attention. queries and
// keys are n × d; query i sees the keys 0 … i. Weights below 10⁻¹² of the largest weight of their row may be left out.
// Needs about 4·n·(48 + d) bytes of memory. Throws Cancelled, and NoMemory.
void add_causal_sums(const MatrixView& queries, const MatrixView& keys, float scale, std::span<double> sums,
                     const Cancel& cancel = {}, const SimdLoops& loops = simd_loops().back());

}  // namespace kvcast
