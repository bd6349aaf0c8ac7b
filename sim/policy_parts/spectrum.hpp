// Principal directions of keys and queries: eigenvectors of their second moments.
#pragma once

#include <cstddef>
#include <vector>

#include "base/matrix.hpp"

namespace kvcast::policy {

// Σ_i x_i·x_iᵀ over the rows of x, with their mean subtracted first if `centred`; cols × cols, row-major.
std::vector<float> second_moments(const MatrixView& x, bool centred);

// Eigenvectors of a symmetric n × n matrix for the `count` largest eigenvalues, 1 ≤ count ≤ n, in descending order:
// orthonormal rows [count × n]. The sign of a row is arbitrary.
std::vector<float> leading_directions(const std::vector<float>& symmetric, std::size_t n, std::size_t count);

}  // namespace kvcast::policy
