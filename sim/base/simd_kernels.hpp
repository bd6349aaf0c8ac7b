// The loops of simd_loops.hpp. Each source that includes this header is compiled for other vector instructions, and
// may set KVCAST_LANES, the floats of a vector register, and KVCAST_ROWS, the rows whose products with two registers of
// columns stay in registers. Nothing else is included and all is local to the source: the linker could choose an inline
// function of a library that was compiled for instructions which the CPU lacks.
#pragma once

#include "base/simd_loops.hpp"

#ifndef KVCAST_LANES
#ifdef __AVX2__
#define KVCAST_LANES 8
#else
#define KVCAST_LANES 4
#endif
#define KVCAST_ROWS 6
#endif

namespace kvcast {
namespace {

using Size = SimdLoops::Size;
constexpr Size kLanes = KVCAST_LANES, kPanel = 2 * kLanes, kRegisterRows = KVCAST_ROWS;
static_assert(SimdLoops::kRows % kRegisterRows == 0 && SimdLoops::kColumns % kPanel == 0);

using Vector = float __attribute__((vector_size(KVCAST_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
using Integers = int __attribute__((vector_size(KVCAST_LANES * sizeof(int))));
using Eight = float __attribute__((vector_size(8 * sizeof(float)), aligned(sizeof(float)), may_alias));

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
void store(float* to, const Vector& v) { *reinterpret_cast<Vector*>(to) = v; }

// to[c · to_stride + j] = from[j · stride + c] for eight j and c.
[[gnu::always_inline]] inline void transpose_eight(const float* from, Size stride, float* to, Size to_stride) {
  Eight r[8], pairs[8], fours[8];
  for (Size i = 0; i < 8; ++i) r[i] = *reinterpret_cast<const Eight*>(from + i * stride);
  for (Size i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (Size i = 0; i < 8; i += 4) {
    for (Size k = 0; k < 2; ++k) {
      fours[i + 2 * k] = __builtin_shufflevector(pairs[i + k], pairs[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * k + 1] = __builtin_shufflevector(pairs[i + k], pairs[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (Size i = 0; i < 4; ++i) {
    const Eight low = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const Eight high = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    *reinterpret_cast<Eight*>(to + i * to_stride) = low;
    *reinterpret_cast<Eight*>(to + (i + 4) * to_stride) = high;
  }
}

// n ≤ width vectors of dims components: all first components, padded with zeros to width, then all second ones.
template <Size width>
void pack_group(const float* from, Size stride, Size n, Size dims, float* packed) {
  const Size eights = n / 8 * 8, whole = dims / 8 * 8;
  for (Size c = 0; c < whole; c += 8) {
    for (Size j = 0; j < eights; j += 8) transpose_eight(from + j * stride + c, stride, packed + c * width + j, width);
  }
  for (Size c = 0; c < dims; ++c) {
    for (Size j = c < whole ? eights : 0; j < width; ++j) packed[c * width + j] = j < n ? from[j * stride + c] : 0.0f;
  }
}

Size at_most(Size n, Size most) { return n < most ? n : most; }

void pack_rows(const float* from, Size stride, Size n, Size dims, float* packed) {
  pack_group<SimdLoops::kRows>(from, stride, n, dims, packed);
}

void pack_columns(const float* from, Size stride, Size n, Size dims, float* packed) {
  const Size all = (n + SimdLoops::kColumns - 1) / SimdLoops::kColumns * SimdLoops::kColumns;
  for (Size j = 0; j < all; j += kPanel) {
    pack_group<kPanel>(from + at_most(j, n) * stride, stride, at_most(n - at_most(j, n), kPanel), dims,
                       packed + j * dims);
  }
}

void copy_columns(const float* from, Size stride, Size n, Size dims, float* packed) {
  const Size all = (n + SimdLoops::kColumns - 1) / SimdLoops::kColumns * SimdLoops::kColumns;
  for (Size first = 0; first < all; first += kPanel, packed += kPanel * dims) {
    if (first + kPanel <= n) {
      for (Size c = 0; c < dims; ++c) {
        const float* const row = from + c * stride + first;
        store(packed + c * kPanel, load(row)), store(packed + c * kPanel + kLanes, load(row + kLanes));
      }
      continue;
    }
    for (Size i = 0; i < kPanel * dims; ++i) {
      const Size c = i / kPanel, j = first + i % kPanel;
      packed[i] = j < n ? from[c * stride + j] : 0.0f;
    }
  }
}

template <Size n>
void multiply_panel(const float* rows, const float* panel, Size dims, float* out, Size stride, bool add) {
  Vector sums[n][2] = {};
  for (Size c = 0; c < dims; ++c) {
    const Vector left = load(panel), right = load(panel + kLanes);
#pragma GCC unroll 16
    for (Size i = 0; i < n; ++i) sums[i][0] += rows[i] * left, sums[i][1] += rows[i] * right;
    panel += kPanel, rows += SimdLoops::kRows;
  }
#pragma GCC unroll 16
  for (Size i = 0; i < n; ++i) {
    float* const to = out + i * stride;
    if (add) sums[i][0] += load(to), sums[i][1] += load(to + kLanes);
    store(to, sums[i][0]), store(to + kLanes, sums[i][1]);
  }
}

// Multiplies the last `rest` ≤ n rows.
template <Size n>
void multiply_last(Size rest, const float* rows, const float* panel, Size dims, float* out, Size stride, bool add) {
  if (rest == n) return multiply_panel<n>(rows, panel, dims, out, stride, add);
  if constexpr (n > 1) multiply_last<n - 1>(rest, rows, panel, dims, out, stride, add);
}

void multiply(const float* rows, Size n, const float* columns, Size n_columns, Size dims, float* out, Size stride,
              bool add) {
  for (Size j = 0; j < n_columns; j += kPanel) {
    const float* const panel = columns + j * dims;
    Size i = 0;
    for (; i + kRegisterRows <= n; i += kRegisterRows) {
      multiply_panel<kRegisterRows>(rows + i, panel, dims, out + i * stride + j, stride, add);
    }
    multiply_last<kRegisterRows - 1>(n - i, rows + i, panel, dims, out + i * stride + j, stride, add);
  }
}

float largest(const float* x, Size n) {
  Vector most = load(x);
  for (Size i = kLanes; i < n; i += kLanes) {
    const Vector v = load(x + i);
    most = most > v ? most : v;
  }
  float lanes[kLanes];
  store(lanes, most);
  float result = lanes[0];
  for (const float lane : lanes) result = result > lane ? result : lane;
  return result;
}

// exp(x) for x ≤ 0, with the constants of softmax (matrix.cpp).
Vector exponential(Vector x) {
  const Vector least = Vector{} - 87.0f;
  x = x > least ? x : least;
  constexpr float kWhole = 12582912.0f;  // 1.5·2²³: a sum with it has no fraction
  const Vector i = (x * 1.44269504088896341f + kWhole) - kWhole;
  const Vector f = (x - i * 0.693359375f) + i * 2.12194440e-4f;
  Vector p = f * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.0f;
  const Integers bits = (__builtin_convertvector(i, Integers) + 127) << 23;
  return p * __builtin_bit_cast(Vector, bits);
}

double exponentials(float* x, Size n, float scale, float top) {
  Vector sums = {};
  for (Size i = 0; i < n; i += kLanes) {
    const Vector e = exponential(load(x + i) * scale - top);
    store(x + i, e);
    sums += e;
  }
  float lanes[kLanes];
  store(lanes, sums);
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

void add(const float* weights, const float* rows, Size stride, double* sums, Size n) {
  for (Size j = 0; j < n; j += kPanel) {
    Vector left = {}, right = {};
    for (Size i = 0; i < SimdLoops::kRows; ++i) {
      const float* const row = rows + i * stride + j;
      left += weights[i] * load(row), right += weights[i] * load(row + kLanes);
    }
    float lanes[kPanel];
    store(lanes, left), store(lanes + kLanes, right);
    for (Size l = 0; l < kPanel; ++l) sums[j + l] += static_cast<double>(lanes[l]);
  }
}

}  // namespace
}  // namespace kvcast
