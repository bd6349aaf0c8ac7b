// Pareto fronts of points with several numbers, for all of which larger is better.
#pragma once

#include <cstddef>
#include <vector>

namespace kvcast::plan {

using Goodness = std::vector<double>;

// Returns whether a is at least as good as b in every number and better in one.
bool dominates(const Goodness& a, const Goodness& b);
// Returns the points that no other one dominates, in their order. Equal points are all kept.
std::vector<std::size_t> pareto_front(const std::vector<Goodness>& points);

}  // namespace kvcast::plan
