#include "base/matrix.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/log_sum_exp.hpp"
#include "base/simd.hpp"

namespace kvcast {
namespace {

// Sizes of the part of the right matrix that stays in the L2 cache while it is multiplied by all rows of the left one.
constexpr std::size_t kDepth = 512, kPart = std::size_t{1} << 17;
// Products with fewer rows are computed directly: packing the right matrix would take longer than the product itself.
constexpr std::size_t kFewRows = 4;

constexpr std::size_t kColumns = SimdLoops::kColumns;
using Pack = void (*)(const float* from, std::size_t stride, std::size_t n, std::size_t dims, float* packed);

// Multiplies the rows of `a` by n columns. `pack` copies a part of these columns, which begins at right(column,
// component).
template <class Right>
void multiply_parts(const MatrixView& a, std::size_t n, const Right& right, std::size_t right_stride, Pack pack,
                    float* out, std::size_t out_stride, const Cancel& cancel, const SimdLoops& loops) {
  const std::size_t deep = std::min(a.cols, kDepth);
  const std::size_t wide =
      std::min((n + kColumns - 1) / kColumns, std::max<std::size_t>(1, kPart / deep / kColumns)) * kColumns;
  const Floats packed = uninitialised_floats(wide * deep), rows = uninitialised_floats(SimdLoops::kRows * deep);
  float edge[SimdLoops::kRows * kColumns];
  for (std::size_t c = 0; c < a.cols; c += deep) {
    const std::size_t dims = std::min(deep, a.cols - c);
    for (std::size_t j = 0; j < n; j += wide) {
      const std::size_t columns = std::min(wide, n - j), whole = columns / kColumns * kColumns;
      pack(right(j, c), right_stride, columns, dims, packed.get());
      for (std::size_t i = 0; i < a.rows; i += SimdLoops::kRows) {
        cancel.check();
        const std::size_t count = std::min(SimdLoops::kRows, a.rows - i);
        loops.pack_rows(a.row(i) + c, a.stride, count, dims, rows.get());
        float* const to = out + i * out_stride + j;
        loops.multiply(rows.get(), count, packed.get(), whole, dims, to, out_stride, c > 0);
        if (whole == columns) continue;
        loops.multiply(rows.get(), count, packed.get() + whole * dims, kColumns, dims, edge, kColumns, false);
        for (std::size_t r = 0; r < count; ++r) {
          for (std::size_t k = whole; k < columns; ++k) {
            float& sum = to[r * out_stride + k];
            sum = (c > 0 ? sum : 0.0f) + edge[r * kColumns + k - whole];
          }
        }
      }
    }
  }
}

// exp(x) for x ≤ 0 by 2^i · p(f): relative error below 3e-7, and simple enough that the compiler vectorises the loop.
inline float fast_exp(float x) {
  x = std::max(x, -87.0f);
  const float t = x * 1.44269504088896341f;
  const float i = std::nearbyint(t);
  const float f = std::fma(-i, 0.693359375f, x) + i * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = std::fma(p, f, 1.3981999507e-3f);
  p = std::fma(p, f, 8.3334519073e-3f);
  p = std::fma(p, f, 4.1665795894e-2f);
  p = std::fma(p, f, 1.6666665459e-1f);
  p = std::fma(p, f, 5.0000001201e-1f);
  p = std::fma(p * f, f, f) + 1.0f;
  const int bits = (static_cast<int>(i) + 127) << 23;
  return p * __builtin_bit_cast(float, bits);
}

// Sums short blocks in single precision, which keeps the vector unit busy, and adds the blocks in double precision.
constexpr std::size_t kSumBlock = 512;
double block_sum(std::span<const float> x) {
  float partial[kSimdWidth] = {};
  std::size_t i = 0;
  for (; i + kSimdWidth <= x.size(); i += kSimdWidth) {
    for (std::size_t l = 0; l < kSimdWidth; ++l) partial[l] += x[i + l];
  }
  for (; i < x.size(); ++i) partial[0] += x[i];
  double sum = 0;
  for (const float p : partial) sum += static_cast<double>(p);
  return sum;
}

// A few rows of b, and those after them: distant rows come from memory, which no prefetcher predicts.
constexpr std::size_t kRowsAtOnce = 32, kColumnsAtOnce = 2 * kSimdWidth;  // 16 floats: one cache line
struct RowBlock {
  const float* rows[kRowsAtOnce];
  const float* later[kRowsAtOnce];
  std::size_t size = 0;
};

// Adds the block's part of n rows of out; `a` points to the first row's weights of the block.
template <std::size_t n>
void add_rows(const float* a, std::size_t a_stride, const RowBlock& block, std::size_t cols, float* out,
              std::size_t out_stride) {
  std::size_t j = 0;
  for (; j + kColumnsAtOnce <= cols; j += kColumnsAtOnce) {
    SimdFloats sums[n][2] = {};
    for (std::size_t r = 0; r < block.size; ++r) {
      __builtin_prefetch(block.later[r] + j);
      const auto* const row = reinterpret_cast<const SimdFloats*>(block.rows[r] + j);
      const SimdFloats row0 = row[0], row1 = row[1];
#pragma GCC unroll 4
      for (std::size_t i = 0; i < n; ++i) {
        const float weight = a[i * a_stride + r];
        sums[i][0] += weight * row0, sums[i][1] += weight * row1;
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      auto* const to = reinterpret_cast<SimdFloats*>(out + i * out_stride + j);
      to[0] += sums[i][0], to[1] += sums[i][1];
    }
  }
  for (; j < cols; ++j) {
    for (std::size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < block.size; ++r) sum += a[i * a_stride + r] * block.rows[r][j];
      out[i * out_stride + j] += sum;
    }
  }
}

}  // namespace

float largest_of(std::span<const float> x, float scale) {
  float largest[kSimdWidth];
  std::fill_n(largest, kSimdWidth, scale * x[0]);
  std::size_t i = 0;
  for (; i + kSimdWidth <= x.size(); i += kSimdWidth) {
    for (std::size_t l = 0; l < kSimdWidth; ++l) largest[l] = std::max(largest[l], scale * x[i + l]);
  }
  for (; i < x.size(); ++i) largest[0] = std::max(largest[0], scale * x[i]);
  return *std::max_element(largest, largest + kSimdWidth);
}

void multiply_transposed(const MatrixView& a, const MatrixView& b, float* out, std::size_t out_stride,
                         const Cancel& cancel, const SimdLoops& loops) {
  KVCAST_CHECK(a.cols == b.cols && a.cols > 0 && out_stride >= b.rows);
  if (a.rows >= kFewRows) {
    const auto right = [&](std::size_t row, std::size_t component) { return b.row(row) + component; };
    return multiply_parts(a, b.rows, right, b.stride, loops.pack_columns, out, out_stride, cancel, loops);
  }
  cancel.check();
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < b.rows; ++j) out[i * out_stride + j] = dot(a.row(i), b.row(j), a.cols);
  }
}

void multiply(const MatrixView& a, const MatrixView& b, float* out, std::size_t out_stride, const SimdLoops& loops) {
  KVCAST_CHECK(a.cols == b.rows && a.cols > 0 && out_stride >= b.cols);
  if (a.rows >= kFewRows) {
    const auto right = [&](std::size_t column, std::size_t component) { return b.row(component) + column; };
    return multiply_parts(a, b.cols, right, b.stride, loops.copy_columns, out, out_stride, {}, loops);
  }
  std::vector<const float*> rows(b.rows);
  for (std::size_t r = 0; r < b.rows; ++r) rows[r] = b.row(r);
  multiply_rows(a, rows, b.cols, out, out_stride);
}

void multiply_rows(const MatrixView& a, std::span<const float* const> rows, std::size_t cols, float* out,
                   std::size_t out_stride) {
  KVCAST_CHECK(a.cols == rows.size() && out_stride >= cols);
  for (std::size_t i = 0; i < a.rows; ++i) std::fill_n(out + i * out_stride, cols, 0.0f);
  const auto row = [&](std::size_t r) { return rows[std::min(r, rows.size() - 1)]; };
  for (std::size_t begin = 0; begin < rows.size(); begin += kRowsAtOnce) {
    RowBlock block;
    block.size = std::min(kRowsAtOnce, rows.size() - begin);
    for (std::size_t r = 0; r < block.size; ++r) {
      block.rows[r] = row(begin + r), block.later[r] = row(begin + kRowsAtOnce + r);
    }
    const float* const weights = a.data + begin;
    std::size_t i = 0;
    for (; i + 4 <= a.rows; i += 4) {
      add_rows<4>(weights + i * a.stride, a.stride, block, cols, out + i * out_stride, out_stride);
    }
    for (; i < a.rows; ++i)
      add_rows<1>(weights + i * a.stride, a.stride, block, cols, out + i * out_stride, out_stride);
  }
}

float dot(const float* a, const float* b, std::size_t n) {
  constexpr std::size_t kSums = 16;  // independent partial sums: vectorises, with less rounding error than a single sum
  float partial[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (std::size_t l = 0; l < kSums; ++l) partial[l] += a[i + l] * b[i + l];
  }
  for (; i < n; ++i) partial[i % kSums] += a[i] * b[i];
  for (std::size_t width = kSums / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) partial[l] += partial[l + width];
  }
  return partial[0];
}

double softmax(std::span<float> x, float scale) {
  KVCAST_CHECK(!x.empty());
  const float top = largest_of(x, scale);
  for (float& v : x) v = fast_exp(std::fma(scale, v, -top));
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); i += kSumBlock)
    sum += block_sum(x.subspan(i, std::min(kSumBlock, x.size() - i)));
  const auto inverse = static_cast<float>(1.0 / sum);
  for (float& v : x) v *= inverse;
  return static_cast<double>(top) + std::log(sum);
}

double log_sum_exp(std::span<const float> x, float scale) {
  KVCAST_CHECK(!x.empty());
  const float top = largest_of(x, scale);
  float exponentials[kSumBlock];
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); i += kSumBlock) {
    const std::span block(exponentials, std::min(kSumBlock, x.size() - i));
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(i), block.size(), block.begin());
    for (float& v : block) v = fast_exp(std::fma(scale, v, -top));
    sum += block_sum(block);
  }
  return static_cast<double>(top) + std::log(sum);
}

}  // namespace kvcast
