// Element types of safetensors files, and conversion of the floating-point ones to and from single precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::trace {

// kOther: a type of the public format that kvcast lists but does not read.
enum class Dtype { kF16, kBF16, kF32, kI32, kI64, kOther };

// "F16", "BF16", ...; "other" for kOther.
std::string_view dtype_name(Dtype dtype);

// A type by its name in a file: its size, and how kvcast treats it. bits = 0 for an unknown name.
struct DtypeName {
  Dtype dtype = Dtype::kOther;
  unsigned bits = 0;
};
DtypeName dtype_from_name(std::string_view name);
// All names of the format, for messages.
std::vector<std::string> known_dtypes();

inline bool is_floating(Dtype dtype) { return dtype == Dtype::kF16 || dtype == Dtype::kBF16 || dtype == Dtype::kF32; }
// Bytes of an element of the types that kvcast reads.
std::size_t dtype_bytes(Dtype dtype);

// Converts n elements of a floating-point type at `in` (little-endian, any alignment) to single precision. Returns
// whether all are finite.
bool to_floats(Dtype dtype, const std::byte* in, std::size_t n, float* out);

// Rounds to the nearest, ties to even. Returns false if a value is not finite in the target type (F16 ends at 65504);
// `out` (n · dtype_bytes, any alignment) is written in any case.
bool from_floats(Dtype dtype, std::span<const float> in, std::byte* out);

// Bit-level conversions that the vectorised ones above must equal; used if the CPU has none of its own.
float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);

}  // namespace kvcast::trace
