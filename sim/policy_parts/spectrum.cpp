// LAPACK's ssyevr (Dhillon and Parlett, "Multiple representations to compute orthogonal eigenvectors of symmetric
// tridiagonal matrices", 2004), as implemented in OpenBLAS.
#include "policy_parts/spectrum.hpp"

#include <algorithm>

#include "base/blas.hpp"
#include "base/error.hpp"

extern "C" {
void ssyevr_(const char* job, const char* range, const char* uplo, const int* n, float* a, const int* lda,
             const float* low, const float* high, const int* first, const int* last, const float* tolerance, int* found,
             float* values, float* vectors, const int* ldz, int* support, float* work, const int* work_size,
             int* integers, const int* integers_size, int* info);
}

namespace kvcast::policy {

std::vector<float> second_moments(const MatrixView& x, bool centred) {
  const std::size_t n = x.cols;
  std::vector<double> mean(n);
  if (centred) {
    for (std::size_t i = 0; i < x.rows; ++i) {
      for (std::size_t j = 0; j < n; ++j) mean[j] += static_cast<double>(x.row(i)[j]) / static_cast<double>(x.rows);
    }
  }
  // Transposes blocks of rows, so that the product reads both sides row by row.
  constexpr std::size_t kBlock = 2048;
  std::vector<float> sum(n * n), part(n * n), columns(n * kBlock);
  for (std::size_t begin = 0; begin < x.rows; begin += kBlock) {
    const std::size_t rows = std::min(kBlock, x.rows - begin);
    for (std::size_t i = 0; i < rows; ++i) {
      const float* const row = x.row(begin + i);
      for (std::size_t j = 0; j < n; ++j) columns[j * rows + i] = row[j] - static_cast<float>(mean[j]);
    }
    const MatrixView block{columns.data(), n, rows, rows};
    multiply_transposed(block, block, part.data(), n);
    for (std::size_t i = 0; i < n * n; ++i) sum[i] += part[i];
  }
  return sum;
}

std::vector<float> leading_directions(std::vector<float> symmetric, std::size_t n, std::size_t count) {
  KVCAST_CHECK(count >= 1 && count <= n && symmetric.size() == n * n);
  const int size = static_cast<int>(n), last = size, first = size - static_cast<int>(count) + 1, minus_one = -1;
  const float none = 0;
  int found = 0, info = 0, integers_needed = 0;
  float work_needed = 0;
  std::vector<float> values(n), vectors(n * count);
  std::vector<int> support(2 * n);
  const BlasTurn turn;
  // LAPACK is column-major: a symmetric matrix is the same, and the columns of its result are rows here.
  ssyevr_("V", "I", "U", &size, symmetric.data(), &size, &none, &none, &first, &last, &none, &found, values.data(),
          vectors.data(), &size, support.data(), &work_needed, &minus_one, &integers_needed, &minus_one, &info);
  std::vector<float> work(static_cast<std::size_t>(work_needed));
  std::vector<int> integers(static_cast<std::size_t>(integers_needed));
  const int work_size = static_cast<int>(work.size()), integers_size = static_cast<int>(integers.size());
  ssyevr_("V", "I", "U", &size, symmetric.data(), &size, &none, &none, &first, &last, &none, &found, values.data(),
          vectors.data(), &size, support.data(), work.data(), &work_size, integers.data(), &integers_size, &info);
  KVCAST_CHECK(info == 0 && found == static_cast<int>(count));
  std::vector<float> out(n * count);  // ascending there, descending here
  for (std::size_t i = 0; i < count; ++i) {
    std::copy_n(vectors.data() + (count - 1 - i) * n, n, out.data() + i * n);
  }
  return out;
}

}  // namespace kvcast::policy
