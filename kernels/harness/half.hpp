// IEEE 754 half precision and bfloat16 as bit patterns: the same code, to the bit, on the host and on the device.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define KVCAST_HD __host__ __device__
#else
#define KVCAST_HD
#endif

namespace kvcast::kernels {

struct Half {
  std::uint16_t bits;
};

inline std::uint32_t float_bits(float x) {
  std::uint32_t u = 0;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
inline float bits_float(std::uint32_t u) {
  float x = 0;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

// Round to nearest, ties to even; too large becomes infinity; a NaN stays one.
inline Half half_of(float x) {
  const std::uint32_t u = float_bits(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<std::uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // from 65520 up
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 lets the adder round to multiples of 2^-24, which is the subnormals' spacing.
    const std::uint32_t rounded = float_bits(bits_float(magnitude) + 0.5f) - 0x3F000000u;
    return {static_cast<std::uint16_t>(sign | rounded)};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13))};
}

inline float value_of(Half h) {
  const std::uint32_t sign = (h.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = h.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return bits_float(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude >= 0x400u) return bits_float(sign | ((magnitude << 13) + 0x38000000u));
  const float small = static_cast<float>(magnitude) * 0x1.0p-24f;
  return sign ? -small : small;
}

// bfloat16: the upper half of a float.
inline std::uint16_t bf16_of(float x) {
  const std::uint32_t u = float_bits(x);
  return static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
inline float bf16_value(std::uint16_t b) { return bits_float(std::uint32_t{b} << 16); }

}  // namespace kvcast::kernels
