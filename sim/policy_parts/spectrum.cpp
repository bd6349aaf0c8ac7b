#include "policy_parts/spectrum.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>

#include "base/error.hpp"

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

std::vector<float> leading_directions(const std::vector<float>& symmetric, std::size_t n, std::size_t count) {
  KVCAST_CHECK(count >= 1 && count <= n && symmetric.size() == n * n);
  const auto size = static_cast<Eigen::Index>(n);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXf> solver(
      Eigen::Map<const Eigen::MatrixXf>(symmetric.data(), size, size));
  KVCAST_CHECK(solver.info() == Eigen::Success);
  std::vector<float> out(n * count);  // ascending there, descending here
  for (std::size_t i = 0; i < count; ++i) {
    std::copy_n(solver.eigenvectors().col(size - 1 - static_cast<Eigen::Index>(i)).data(), n, out.data() + i * n);
  }
  return out;
}

}  // namespace kvcast::policy
