#include "trace/dtype.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace kvcast::tests {

using namespace trace;

namespace {

template <typename T>
const std::byte* bytes_of(const std::vector<T>& v) {
  return reinterpret_cast<const std::byte*>(v.data());
}

std::vector<std::uint16_t> to_16(Dtype dtype, const std::vector<float>& values, bool* finite = nullptr) {
  std::vector<std::uint16_t> out(values.size());
  const bool all = from_floats(dtype, values, reinterpret_cast<std::byte*>(out.data()));
  if (finite != nullptr) *finite = all;
  return out;
}

float one_half(std::uint16_t bits) {
  float value = 0;
  const std::vector<std::uint16_t> in = {bits};
  to_floats(Dtype::kF16, bytes_of(in), 1, &value);
  return value;
}

}  // namespace

TEST_CASE("binary16 values equal those worked out by hand") {
  // sign 1, exponent 5 (bias 15), mantissa 10 bits.
  CHECK(one_half(0x3C00) == 1.0f);             // 2^0
  CHECK(one_half(0xC100) == -2.5f);            // −2^1 · 1.25
  CHECK(one_half(0x7BFF) == 65504.0f);         // 2^15 · (2 − 2^−10)
  CHECK(one_half(0x0001) == 0x1p-24f);         // smallest subnormal
  CHECK(one_half(0x03FF) == 1023 * 0x1p-24f);  // largest subnormal
  CHECK(one_half(0x0400) == 0x1p-14f);         // smallest normal
  CHECK(std::signbit(one_half(0x8000)));
  CHECK(std::isinf(one_half(0x7C00)));
  CHECK(std::isnan(one_half(0x7E00)));
}

TEST_CASE("the vector conversion of every binary16 pattern equals the bit-level one and is reversible") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  CHECK_FALSE(to_floats(Dtype::kF16, bytes_of(all), all.size(), wide.data()));  // infinities and NaNs are among them
  std::vector<std::uint16_t> back = to_16(Dtype::kF16, wide);
  int differing = 0, not_back = 0, not_portable = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    differing += std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(half_to_float(all[i]));
    if (!std::isnan(wide[i])) not_back += back[i] != all[i];
    not_portable += float_to_half(wide[i]) != back[i];
  }
  CHECK(differing == 0);
  CHECK(not_back == 0);
  CHECK(not_portable == 0);
}

TEST_CASE("both conversions to binary16 round to nearest, ties to even") {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x48000000u; bits += 4099) {  // 0 .. 131072, across subnormals and overflow
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-std::bit_cast<float>(bits));
  }
  // Midway between 1 and 1 + 2^−10: to even is 1; midway between the next two: up. 65519.99 still fits, 65520 does not.
  for (const float special :
       {1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 65519.0f, 65520.0f, 0x1p-25f, 1.5f * 0x1p-24f, 0x1p-26f}) {
    values.push_back(special);
  }
  const std::vector<std::uint16_t> halves = to_16(Dtype::kF16, values);
  int differing = 0, not_nearest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    differing += halves[i] != float_to_half(values[i]);
    const float magnitude = std::fabs(values[i]);
    const auto bits = static_cast<std::uint16_t>(halves[i] & 0x7FFF);
    if (bits >= 0x7BFF) continue;
    const float error = std::fabs(half_to_float(bits) - magnitude);
    const float above = std::fabs(half_to_float(static_cast<std::uint16_t>(bits + 1)) - magnitude);
    const float below = bits == 0 ? error : std::fabs(half_to_float(static_cast<std::uint16_t>(bits - 1)) - magnitude);
    not_nearest += error > above || error > below || ((error == above) && (bits & 1) != 0);
  }
  CHECK(differing == 0);
  CHECK(not_nearest == 0);
  const std::size_t n = values.size();
  CHECK(halves[n - 7] == 0x3C00);
  CHECK(halves[n - 6] == 0x3C02);
  CHECK(halves[n - 5] == 0x7BFF);
  CHECK(halves[n - 4] == 0x7C00);
  CHECK(halves[n - 3] == 0x0000);
  CHECK(halves[n - 2] == 0x0002);
  CHECK(halves[n - 1] == 0x0000);
}

TEST_CASE("bfloat16 is the upper half of a float, rounded to even") {
  // 1 + 2^−8 is midway between 1 and 1 + 2^−7: even is 1 (0x3F80). 1 + 3·2^−8 is midway to 1 + 2^−6: 0x3F82.
  CHECK(to_16(Dtype::kBF16, {1.0f, 1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -2.0f}) ==
        std::vector<std::uint16_t>{0x3F80, 0x3F80, 0x3F82, 0xC000});
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  to_floats(Dtype::kBF16, bytes_of(all), all.size(), wide.data());
  const auto back = to_16(Dtype::kBF16, wide);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    wrong += std::bit_cast<std::uint32_t>(wide[i]) != i << 16;
    wrong += std::isnan(wide[i]) ? (back[i] & 0x7F80) != 0x7F80 || (back[i] & 0x7F) == 0 : back[i] != all[i];
  }
  CHECK(wrong == 0);
}

TEST_CASE("a value that does not fit the type is reported") {
  bool finite = true;
  to_16(Dtype::kF16, {1.0f, 70000.0f}, &finite);
  CHECK_FALSE(finite);
  to_16(Dtype::kBF16, {70000.0f}, &finite);
  CHECK(finite);
  to_16(Dtype::kBF16, {std::numeric_limits<float>::max()}, &finite);  // rounds up to 2^128
  CHECK_FALSE(finite);
  std::vector<float> bad(3000, 1.0f);
  bad[2999] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(bad.size());
  CHECK_FALSE(to_floats(Dtype::kF32, bytes_of(bad), bad.size(), out.data()));
  bad[2999] = 0;
  CHECK(to_floats(Dtype::kF32, bytes_of(bad), bad.size(), out.data()));
}

TEST_CASE("data at an unaligned address are read correctly") {
  const std::vector<float> values = {0.5f, -3.25f, 1e-3f, 17.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16, Dtype::kF32}) {
    std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype) + 1);
    from_floats(dtype, values, bytes.data() + 1);
    std::vector<std::byte> even(bytes.begin() + 1, bytes.end());
    std::vector<float> odd_read(values.size()), even_read(values.size());
    to_floats(dtype, bytes.data() + 1, values.size(), odd_read.data());
    to_floats(dtype, even.data(), values.size(), even_read.data());
    CHECK(odd_read == even_read);
    CHECK(odd_read[0] == 0.5f);
  }
}

}  // namespace kvcast::tests
