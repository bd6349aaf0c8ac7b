// Chooses the link's parameters by published scores.
#pragma once

#include <vector>

#include "accuracy/evaluate.hpp"

namespace kvcast::accuracy {

// Least mean absolute error over the cells that have a prediction; `replays` as evaluate's, one list a cell. Intervals
// and residuals as link.hpp says.
Link fit_link(const std::vector<Cell>& cells, const std::vector<Replays>& replays);

}  // namespace kvcast::accuracy
