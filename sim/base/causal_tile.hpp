// A tile of causal attention: the scores of a few queries and some keys, which stay in a core's cache, and the loops
// over it. Includes nothing: see causal_kernel.hpp.
#pragma once

namespace kvcast {

struct CausalTile {
  using Size = decltype(sizeof 0);
  static constexpr Size kRows = 48, kKeys = 1024;
  static constexpr Size kStride = kKeys + 16;  // of rows: a power of two would put them all into one set of the cache

  // Lays kKeys keys out as `score` reads them, those after the first n as zeros.
  void (*pack)(const float* keys, Size stride, Size n, Size dims, float* packed);
  // scores[r · kStride + j] = Σ_c queries[c · kRows + r] · key j's component c, for r < kRows and j < kKeys.
  void (*score)(const float* queries, const float* packed, Size dims, float* scores);
  float (*largest)(const float* row);
  // row[j] ← exp(scale · row[j] − top), at most 1; returns the sum.
  double (*exponentials)(float* row, float scale, float top);
  // sums[j] += Σ_r weights[r] · rows[r · kStride + j].
  void (*add)(const float* weights, const float* rows, double* sums);
};

}  // namespace kvcast
