// Chooses the link's parameters by published scores.
#pragma once

#include <optional>
#include <vector>

#include "accuracy/evaluate.hpp"

namespace kvcast::accuracy {

// Least mean absolute error over the cells that have a prediction; `replays` as evaluate's, one list a cell. Intervals
// and residuals as link.hpp says.
Link fit_link(const std::vector<Cell>& cells, const std::vector<Replays>& replays);

// The share of the tasks' errors that is common to the tasks of a mean: the least with which 80 % of the published
// averages lie within their intervals. The averages are predicted with a link whose `common` is 1; those without a
// prediction, or of one task, say nothing. Nothing where none is left.
std::optional<double> fit_common(const std::vector<Average>& averages);

}  // namespace kvcast::accuracy
