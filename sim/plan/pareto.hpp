// The Pareto front of points with several numbers, all of them better larger.
#pragma once

#include <cstddef>
#include <vector>

namespace kvcast::plan {

using Goodness = std::vector<double>;

// Whether a is at least as good as b in every number and better in one.
bool dominates(const Goodness& a, const Goodness& b);
// The points that no other one dominates, in their order. Equal points are all kept.
std::vector<std::size_t> pareto_front(const std::vector<Goodness>& points);

}  // namespace kvcast::plan
