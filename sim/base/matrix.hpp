// Views of row-major single-precision matrices, and the few dense operations that the replay needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cancel.hpp"
#include "base/simd.hpp"

namespace kvcast {

// A rows × cols matrix, row-major, with `stride` floats from one row to the next. Does not own its data.
struct MatrixView {
  const float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  const float* row(std::size_t i) const { return data + i * stride; }
};

// out[i][j] = Σ_c a[i][c] · b[j][c]: scores of a's rows (queries) against b's rows (keys). out is a.rows × b.rows with
// row stride out_stride ≥ b.rows; a.cols ≥ 1. Single-threaded; each sum's order depends on the shapes alone, so that
// results are the same on every CPU with fused multiply-adds. Throws Cancelled, and NoMemory.
void multiply_transposed(const MatrixView& a, const MatrixView& b, float* out, std::size_t out_stride,
                         const Cancel& cancel = {}, const SimdLoops& loops = simd_loops().back());

// out[i][j] = Σ_c a[i][c] · b[c][j]: sums of b's rows (values) weighted by a's. out is a.rows × b.cols with row stride
// out_stride ≥ b.cols.
void multiply(const MatrixView& a, const MatrixView& b, float* out, std::size_t out_stride,
              const SimdLoops& loops = simd_loops().back());

// out[i][j] = Σ_r a[i][r] · rows[r][j], j < cols: multiply by rows that lie anywhere. a.cols = rows.size(); rows may
// repeat.
void multiply_rows(const MatrixView& a, std::span<const float* const> rows, std::size_t cols, float* out,
                   std::size_t out_stride);

float dot(const float* a, const float* b, std::size_t n);

// Returns the largest scale·x[i]. n ≥ 1.
float largest_of(std::span<const float> x, float scale = 1.0f);

// In place: x[i] ← exp(scale·x[i] − m) / Σ, m = max. Returns log Σ exp(scale·x). n ≥ 1.
double softmax(std::span<float> x, float scale = 1.0f);

}  // namespace kvcast
