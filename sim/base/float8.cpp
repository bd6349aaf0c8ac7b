#include "base/float8.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast {
namespace {

float nearest(float x, int fraction, int least_exponent, float largest) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent − 1), 2^exponent)
  const float step = std::ldexp(1.0f, std::max(exponent - 1, least_exponent) - fraction);
  return std::clamp(std::nearbyint(x / step) * step, -largest, largest);
}

}  // namespace

float nearest_e4m3(float x) { return nearest(x, 3, -6, 448); }
float nearest_e5m2(float x) { return nearest(x, 2, -14, 57344); }

}  // namespace kvcast
