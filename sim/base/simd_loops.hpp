// The loops in which matrix products and sums of attention spend their time, for one kind of vector instructions.
// Includes nothing: see simd_kernels.hpp.
#pragma once

namespace kvcast {

// Matrix products are the same to the last bit for every kind of instructions; sums of exponentials are not.
struct SimdLoops {
  using Size = decltype(sizeof 0);
  static constexpr Size kRows = 48;     // of a left matrix, at a time
  static constexpr Size kColumns = 32;  // of a right matrix: packed ones are a multiple of it

  // Lay n columns of the right matrix, and n ≤ kRows rows of the left one, out for `multiply`: the first component of
  // all of them, then the second, and so on; columns in groups whose size divides kColumns, rows as if there were
  // kRows. Component c of the j-th is at from[j · stride + c] (pack_columns, pack_rows) or from[c · stride + j]
  // (copy_columns). Missing columns and rows are zero.
  void (*pack_columns)(const float* from, Size stride, Size n, Size dims, float* packed);
  void (*copy_columns)(const float* from, Size stride, Size n, Size dims, float* packed);
  void (*pack_rows)(const float* from, Size stride, Size n, Size dims, float* packed);
  // out[i · stride + j] = Σ_c row i's component c · column j's, for i < n ≤ kRows and j < columns, a multiple of
  // kColumns; or the same added to what is there.
  void (*multiply)(const float* rows, Size n, const float* columns, Size n_columns, Size dims, float* out, Size stride,
                   bool add);
  // The following are given a multiple of kColumns numbers.
  float (*largest)(const float* x, Size n);
  // x[j] ← exp(scale · x[j] − top), at most 1; returns the sum.
  double (*exponentials)(float* x, Size n, float scale, float top);
  // sums[j] += Σ_i weights[i] · rows[i · stride + j], i < kRows.
  void (*add)(const float* weights, const float* rows, Size stride, double* sums, Size n);
};

}  // namespace kvcast
