#include "base/random.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/error.hpp"

namespace kvcast {
namespace {

// Acklam's rational approximation of the normal quantile, then one Halley step: relative error below 1e-15.
double normal_quantile(double p) {
  static constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                                 1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  static constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                                 6.680131188771972e+01, -1.328068155288572e+01};
  static constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                                 -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  static constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                                 3.754408661907416e+00};
  double x;
  if (p < 0.02425 || p > 1 - 0.02425) {
    const double q = std::sqrt(-2 * std::log(p < 0.5 ? p : 1 - p));
    x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
        ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    if (p > 0.5) x = -x;
  } else {
    const double q = p - 0.5;
    const double r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  const double e = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
  const double u = e * std::sqrt(2 * M_PI) * std::exp(x * x / 2);
  return x - u / (1 + x * u / 2);
}

constexpr std::size_t kTable = 1u << 15;

// Mid-point quantiles of the upper half; the 16th bit is the sign. Scaled so that the variance is exactly 1.
std::array<float, kTable> make_table() {
  std::array<float, kTable> table{};
  double square = 0;
  for (std::size_t i = 0; i < kTable; ++i) {
    const double z = normal_quantile(0.5 + (static_cast<double>(i) + 0.5) / (2.0 * kTable));
    square += z * z;
    table[i] = static_cast<float>(z);
  }
  const auto scale = static_cast<float>(1 / std::sqrt(square / static_cast<double>(kTable)));
  for (float& z : table) z *= scale;
  return table;
}

}  // namespace

double Stream::normal(std::uint64_t i) const {
  return normal_quantile((static_cast<double>(bits(i) >> 12) + 0.5) * 0x1.0p-52);
}

void Stream::normals(std::uint64_t first, std::uint64_t n, float* out) const {
  static const std::array<float, kTable> table = make_table();  // immutable after its thread-safe construction
  KVCAST_CHECK(first % 4 == 0);
  // The sign is inserted as a bit: a branch on it would be mispredicted half of the time.
  const auto signed_at = [](std::uint64_t sixteen) {
    const auto magnitude = std::bit_cast<std::uint32_t>(table[sixteen & 0x7FFF]);
    return std::bit_cast<float>(magnitude | static_cast<std::uint32_t>(sixteen & 0x8000) << 16);
  };
  std::uint64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const std::uint64_t word = bits((first + i) / 4);
    for (std::uint64_t j = 0; j < 4; ++j) out[i + j] = signed_at(word >> (16 * j));
  }
  for (std::uint64_t j = i; j < n; ++j) out[j] = signed_at(bits((first + i) / 4) >> (16 * (j - i)));
}

}  // namespace kvcast
