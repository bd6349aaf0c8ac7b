// Fits the parameters of the score model to published scores.
#pragma once

#include <optional>
#include <vector>

#include "accuracy/evaluate.hpp"

namespace kvcast::accuracy {

// Parameters that fit_link() varies. Fewer rows do not determine them.
inline constexpr std::size_t kFittedParameters = 4;

// Minimises the mean absolute error over the cells that have a prediction; `replays` as for evaluate, one list per
// cell. Intervals and residuals are defined in link.hpp.
RecallMap fit_link(const std::vector<Cell>& cells, const std::vector<CellSamples>& replays);

// The share of the tasks' errors that the tasks of a mean have in common: the smallest share for which 80 % of the
// published averages lie within their intervals. The averages must be predicted with a score model whose `common` is 1;
// those without a prediction, or of a single task, do not count. Empty if none is left.
std::optional<double> fit_common(const std::vector<Average>& averages);

}  // namespace kvcast::accuracy
