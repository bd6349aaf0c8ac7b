#include "base/matrix.hpp"

#include <algorithm>
#include <cmath>

#include "base/blas.hpp"
#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/log_sum_exp.hpp"

extern "C" {
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc);
}

namespace kvcast {
namespace {

constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

// Multiply-adds between two looks at a request to stop: about a third of a second on one slow core.
constexpr std::size_t kMostProducts = std::size_t{1} << 32;
constexpr std::size_t kLeastRows = 64;  // of a part: fewer would read the other matrix too often

// Size of the parts into which n rows are cut, a multiple of kLeastRows unless it is all of them.
std::size_t part_of(std::size_t n, std::size_t most) {
  return n <= most ? n : std::min(n, std::max(kLeastRows, most / kLeastRows * kLeastRows));
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
                         const Cancel& cancel) {
  KVCAST_CHECK(a.cols == b.cols && out_stride >= b.rows);
  if (a.rows == 0 || b.rows == 0) return;
  const BlasTurn turn;
  // Parts depend on the shapes alone, so that results do not depend on who may stop the work.
  const std::size_t columns =
      part_of(b.rows, kMostProducts / std::min(a.rows, kLeastRows) / std::max<std::size_t>(1, a.cols));
  const std::size_t rows = part_of(a.rows, kMostProducts / columns / std::max<std::size_t>(1, a.cols));
  for (std::size_t i = 0; i < a.rows; i += rows) {
    for (std::size_t j = 0; j < b.rows; j += columns) {
      cancel.check();
      cblas_sgemm(kRowMajor, kNoTrans, kTrans, static_cast<int>(std::min(rows, a.rows - i)),
                  static_cast<int>(std::min(columns, b.rows - j)), static_cast<int>(a.cols), 1.0f, a.row(i),
                  static_cast<int>(a.stride), b.row(j), static_cast<int>(b.stride), 0.0f, out + i * out_stride + j,
                  static_cast<int>(out_stride));
    }
  }
}

void multiply(const MatrixView& a, const MatrixView& b, float* out, std::size_t out_stride) {
  KVCAST_CHECK(a.cols == b.rows && out_stride >= b.cols);
  if (a.rows == 0 || b.cols == 0) return;
  const BlasTurn turn;
  cblas_sgemm(kRowMajor, kNoTrans, kNoTrans, static_cast<int>(a.rows), static_cast<int>(b.cols),
              static_cast<int>(a.cols), 1.0f, a.data, static_cast<int>(a.stride), b.data, static_cast<int>(b.stride),
              0.0f, out, static_cast<int>(out_stride));
}

void multiply_rows(const MatrixView& a, std::span<const std::int32_t> rows, const MatrixView& b, float* out,
                   std::size_t out_stride) {
  KVCAST_CHECK(a.cols == rows.size() && out_stride >= b.cols);
  for (std::size_t i = 0; i < a.rows; ++i) std::fill_n(out + i * out_stride, b.cols, 0.0f);
  const auto row = [&](std::size_t r) { return b.row(static_cast<std::size_t>(rows[std::min(r, rows.size() - 1)])); };
  for (std::size_t begin = 0; begin < rows.size(); begin += kRowsAtOnce) {
    RowBlock block;
    block.size = std::min(kRowsAtOnce, rows.size() - begin);
    for (std::size_t r = 0; r < block.size; ++r) {
      block.rows[r] = row(begin + r), block.later[r] = row(begin + kRowsAtOnce + r);
    }
    const float* const weights = a.data + begin;
    std::size_t i = 0;
    for (; i + 4 <= a.rows; i += 4) {
      add_rows<4>(weights + i * a.stride, a.stride, block, b.cols, out + i * out_stride, out_stride);
    }
    for (; i < a.rows; ++i)
      add_rows<1>(weights + i * a.stride, a.stride, block, b.cols, out + i * out_stride, out_stride);
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
