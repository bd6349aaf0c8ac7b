#include "plan/pareto.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::plan {

bool dominates(const Goodness& a, const Goodness& b) {
  KVCAST_CHECK(a.size() == b.size());
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i]) return false;
    better = better || a[i] > b[i];
  }
  return better;
}

std::vector<std::size_t> pareto_front(const std::vector<Goodness>& points) {
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool beaten = std::ranges::any_of(points, [&](const Goodness& p) { return dominates(p, points[i]); });
    if (!beaten) front.push_back(i);
  }
  return front;
}

}  // namespace kvcast::plan
