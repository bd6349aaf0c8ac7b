// IEEE 754 binary16 and bfloat16 to and from binary32. The loops are written so that the compiler vectorises them;
// binary16 uses the CPU's own conversion (F16C) if the build allows it.
#include "trace/dtype.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

#ifdef __F16C__
#include <immintrin.h>
#endif

static_assert(std::endian::native == std::endian::little, "trace files are little-endian; this host needs byte swaps");

namespace kvcast::trace {
namespace {

struct Named {
  std::string_view name;
  DtypeName type;
};

// https://github.com/huggingface/safetensors, safetensors/src/tensor.rs: enum Dtype.
constexpr std::array<Named, 20> kTypes = {
    {{"F16", {Dtype::kF16, 16}},      {"BF16", {Dtype::kBF16, 16}},    {"F32", {Dtype::kF32, 32}},
     {"I32", {Dtype::kI32, 32}},      {"I64", {Dtype::kI64, 64}},      {"BOOL", {Dtype::kOther, 8}},
     {"U8", {Dtype::kOther, 8}},      {"I8", {Dtype::kOther, 8}},      {"U16", {Dtype::kOther, 16}},
     {"I16", {Dtype::kOther, 16}},    {"U32", {Dtype::kOther, 32}},    {"U64", {Dtype::kOther, 64}},
     {"F64", {Dtype::kOther, 64}},    {"C64", {Dtype::kOther, 64}},    {"F8_E5M2", {Dtype::kOther, 8}},
     {"F8_E4M3", {Dtype::kOther, 8}}, {"F8_E8M0", {Dtype::kOther, 8}}, {"F6_E2M3", {Dtype::kOther, 6}},
     {"F6_E3M2", {Dtype::kOther, 6}}, {"F4", {Dtype::kOther, 4}}}};

constexpr std::size_t kBlock = 1024;  // elements converted between checks; fits the first-level cache

bool all_finite(const float* x, std::size_t n) {
  std::uint32_t worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(x[i]) & 0x7F800000u;
    worst = exponent > worst ? exponent : worst;
  }
  return worst != 0x7F800000u;
}

void halves_to_floats(const std::uint16_t* in, std::size_t n, float* out) {
  std::size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < n; ++i) out[i] = half_to_float(in[i]);
}

void floats_to_halves(const float* in, std::size_t n, std::uint16_t* out) {
  std::size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
#endif
  for (; i < n; ++i) out[i] = float_to_half(in[i]);
}

std::uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // stays a NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  for (const Named& t : kTypes) {
    if (t.type.dtype == dtype && dtype != Dtype::kOther) return t.name;
  }
  return "other";
}

DtypeName dtype_from_name(std::string_view name) {
  for (const Named& t : kTypes) {
    if (t.name == name) return t.type;
  }
  return {};
}

std::vector<std::string> known_dtypes() {
  std::vector<std::string> names;
  for (const Named& t : kTypes) names.emplace_back(t.name);
  return names;
}

std::size_t dtype_bytes(Dtype dtype) {
  const std::size_t bytes = dtype_from_name(dtype_name(dtype)).bits / 8;
  KVCAST_CHECK(bytes > 0);
  return bytes;
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa · 2^−24, exact in single precision
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  // A signalling NaN is made quiet, as the CPU's conversion does.
  const std::uint32_t quiet = exponent == 31 && mantissa != 0 ? 0x400000u : 0u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13) | quiet);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // below 2^−14: subnormal; value · 2^24 is an integer after rounding
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t rebased = magnitude - (112u << 23);
  const std::uint32_t rounded = (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
  return static_cast<std::uint16_t>(sign | rounded);
}

bool to_floats(Dtype dtype, const std::byte* in, std::size_t n, float* out) {
  KVCAST_CHECK(is_floating(dtype));
  bool finite = true;
  std::array<std::uint16_t, kBlock> buffer;  // data in a file may be unaligned
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, n - first);
    float* const to = out + first;
    if (dtype == Dtype::kF32) {
      std::memcpy(to, in + first * sizeof(float), count * sizeof(float));
    } else {
      std::memcpy(buffer.data(), in + first * sizeof(std::uint16_t), count * sizeof(std::uint16_t));
      if (dtype == Dtype::kF16) {
        halves_to_floats(buffer.data(), count, to);
      } else {
        for (std::size_t i = 0; i < count; ++i) {
          to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(buffer[i]) << 16);
        }
      }
    }
    finite = all_finite(to, count) && finite;
  }
  return finite;
}

bool from_floats(Dtype dtype, std::span<const float> in, std::byte* out) {
  KVCAST_CHECK(is_floating(dtype));
  if (dtype == Dtype::kF32) {
    if (!in.empty()) std::memcpy(out, in.data(), in.size_bytes());
    return all_finite(in.data(), in.size());
  }
  const std::uint16_t exponent = dtype == Dtype::kF16 ? 0x7C00u : 0x7F80u;
  bool finite = true;
  std::array<std::uint16_t, kBlock> buffer;
  for (std::size_t first = 0; first < in.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, in.size() - first);
    if (dtype == Dtype::kF16) {
      floats_to_halves(in.data() + first, count, buffer.data());
    } else {
      for (std::size_t i = 0; i < count; ++i) buffer[i] = float_to_bfloat(in[first + i]);
    }
    for (std::size_t i = 0; i < count; ++i) finite = finite && (buffer[i] & exponent) != exponent;
    std::memcpy(out + first * sizeof(std::uint16_t), buffer.data(), count * sizeof(std::uint16_t));
  }
  return finite;
}

}  // namespace kvcast::trace
