// Clusters of keys by direction: spherical k-means with a stated number of iterations.
#pragma once

#include <cstdint>
#include <vector>

#include "base/matrix.hpp"
#include "base/random.hpp"

namespace kvcast::policy {

struct Clusters {
  std::vector<float> centroids;      // [clusters × d]: means of the members as they are, not normalised
  std::vector<std::int64_t> sizes;   // of each cluster, at least 1
  std::vector<std::int32_t> labels;  // of each row, its cluster
};

// At most `count` ≥ 1 clusters of the rows: fewer where some stay empty. Starts from `count` distinct rows that the
// stream draws; each of `iterations` ≥ 1 rounds gives every row to the centre of the largest cosine (ties: the first)
// and moves the centres; stops early once nothing moves. The same input gives the same result.
Clusters cluster_by_direction(const MatrixView& rows, std::size_t count, int iterations, const Stream& stream);

}  // namespace kvcast::policy
