#include "config/points.hpp"

#include "config/section.hpp"

namespace kvcast::config {

void read_points(const Node& points, std::string_view key, const CurveUnits& units, Curve& curve) {
  constexpr double kMost = 1e18;
  if (points.kind() != Node::Kind::kList || points.items().empty()) {
    throw UserError(points.where(), fmt::format("{}: points must be a list of [x, y] pairs", key));
  }
  curve.x.clear();
  curve.y.clear();
  for (const Node& point : points.items()) {
    if (point.kind() != Node::Kind::kList || point.items().size() != 2) {
      throw UserError(point.where(), fmt::format("{}: a point is a pair [x, y]", key));
    }
    const double x = read_quantity(point.items()[0], key, units.x, 0, kMost);
    if (!curve.x.empty() && x <= curve.x.back()) {
      throw UserError(point.where(), fmt::format("{}: points must ascend in x", key));
    }
    curve.x.push_back(x);
    curve.y.push_back(read_quantity(point.items()[1], key, units.y, units.low, units.high));
  }
}

}  // namespace kvcast::config
