// Numbers of single heads and steps of a replay: the similarity of queries on which speculation rests, and the volume
// of the keys that a policy keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>

#include "base/matrix.hpp"
#include "replay/replay.hpp"

namespace kvcast::replay {

// Natural logarithm of the product of the squared singular values of the keys at these positions: of the determinant of
// KᵀK for at least head_dim keys, of KKᵀ for fewer (KeyDiff, Fig. 12). −∞ for keys that are linearly dependent in
// double precision, or for no keys.
double log_volume(const MatrixView& keys, std::span<const std::int32_t> positions);

// Mean of LayerCounts::log_volume over all layers and heads; nothing unless it was asked for and is finite.
std::optional<double> mean_log_volume(const ReplayResult& result);

// Writes a CSV table with one row for each captured layer, step and head of the selection: its counts, and the cosine
// of the queries of this step and the one before (FreeKV, Fig. 3), mean over the query heads that share the selection;
// empty at the first step.
void write_steps(const ReplayResult& result, std::ostream& out);

}  // namespace kvcast::replay
