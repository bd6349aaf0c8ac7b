// Reads the points of a curve as they are written in YAML.
#pragma once

#include <string_view>

#include "base/units.hpp"
#include "config/hardware.hpp"

namespace kvcast::config {

struct CurveUnits {
  Dimension x, y;
  double low, high;  // range of y
};

// Reads `[[x, y], ...]` into x and y of the curve, x ascending. Throws UserError naming `key`.
void read_points(const Node& points, std::string_view key, const CurveUnits& units, Curve& curve);

}  // namespace kvcast::config
