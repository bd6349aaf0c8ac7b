// The inner loops of causal_sums.cpp. Each source that includes this header is compiled for other vector instructions,
// and sets KVCAST_LANES, the floats of a vector register, and KVCAST_ROWS, the queries whose products with two
// registers of keys stay in registers. Nothing is included here and all is local to the source: the linker could choose
// an inline function of a library that was compiled for instructions which the CPU lacks.
#pragma once

#include "base/causal_tile.hpp"

namespace kvcast {
namespace {

using Index = decltype(sizeof 0);
constexpr Index kLanes = KVCAST_LANES, kRows = KVCAST_ROWS, kPanel = 2 * kLanes;
static_assert(CausalTile::kRows % kRows == 0 && CausalTile::kKeys % kPanel == 0);

using Vector = float __attribute__((vector_size(KVCAST_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
using Integers = int __attribute__((vector_size(KVCAST_LANES * sizeof(int))));

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
void store(float* to, const Vector& v) { *reinterpret_cast<Vector*>(to) = v; }

void pack(const float* keys, Index stride, Index n, Index dims, float* panels) {
  for (Index first = 0; first < CausalTile::kKeys; first += kPanel) {
    for (Index c = 0; c < dims; ++c) {
      for (Index i = first; i < first + kPanel; ++i) *panels++ = i < n ? keys[i * stride + c] : 0.0f;
    }
  }
}

// Scores of kRows queries and one panel.
void multiply_panel(const float* queries, const float* panel, Index dims, float* out) {
  Vector sums[kRows][2] = {};
  for (Index c = 0; c < dims; ++c) {
    const Vector left = load(panel), right = load(panel + kLanes);
#pragma GCC unroll 16
    for (Index r = 0; r < kRows; ++r) sums[r][0] += queries[r] * left, sums[r][1] += queries[r] * right;
    panel += kPanel, queries += CausalTile::kRows;
  }
#pragma GCC unroll 16
  for (Index r = 0; r < kRows; ++r) {
    store(out + r * CausalTile::kStride, sums[r][0]);
    store(out + r * CausalTile::kStride + kLanes, sums[r][1]);
  }
}

void score(const float* queries, const float* panels, Index dims, float* scores) {
  for (Index key = 0; key < CausalTile::kKeys; key += kPanel) {
    for (Index r = 0; r < CausalTile::kRows; r += kRows) {
      multiply_panel(queries + r, panels + key * dims, dims, scores + r * CausalTile::kStride + key);
    }
  }
}

float largest(const float* x) {
  Vector most = load(x);
  for (Index i = kLanes; i < CausalTile::kKeys; i += kLanes) {
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

double exponentials(float* x, float scale, float top) {
  Vector sums = {};
  for (Index i = 0; i < CausalTile::kKeys; i += kLanes) {
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

void add(const float* weights, const float* rows, double* sums) {
  for (Index i = 0; i < CausalTile::kKeys; i += kPanel) {
    Vector left = {}, right = {};
    for (Index r = 0; r < CausalTile::kRows; ++r) {
      const float* const row = rows + r * CausalTile::kStride + i;
      left += weights[r] * load(row), right += weights[r] * load(row + kLanes);
    }
    float lanes[kPanel];
    store(lanes, left), store(lanes + kLanes, right);
    for (Index l = 0; l < kPanel; ++l) sums[i + l] += static_cast<double>(lanes[l]);
  }
}

}  // namespace
}  // namespace kvcast
