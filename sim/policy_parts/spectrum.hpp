// Principal directions of keys and queries: eigenvectors of their second moments.
#pragma once

#include <cstddef>
#include <vector>

#include "base/matrix.hpp"

namespace kvcast::policy {

// Σ_i x_i·x_iᵀ over the rows of x, minus their mean first where `centred`; cols × cols, row-major.
std::vector<float> second_moments(const MatrixView& x, bool centred);

// Eigenvectors of a symmetric n × n matrix of the `count` largest eigenvalues, 1 ≤ count ≤ n, the largest first:
// orthonormal rows [count × n]. The sign of a row is open.
std::vector<float> leading_directions(std::vector<float> symmetric, std::size_t n, std::size_t count);

}  // namespace kvcast::policy
