// Clusters of keys by direction: spherical k-means with a fixed number of iterations.
#pragma once

#include <cstdint>
#include <vector>

#include "base/matrix.hpp"
#include "base/random.hpp"

namespace kvcast::policy {

struct Clusters {
  std::vector<float> centroids;      // [clusters × d]: means of the members, not normalised
  std::vector<std::int64_t> sizes;   // members of each cluster, at least 1
  std::vector<std::int32_t> labels;  // cluster of each row
};

// Returns at most `count` ≥ 1 clusters of the rows; empty clusters are dropped. Starts from `count` distinct rows drawn
// from the stream. Each of `iterations` ≥ 1 rounds assigns every row to the centre of largest cosine (ties: the first)
// and moves the centres; stops early if nothing changes. Deterministic.
Clusters cluster_by_direction(const MatrixView& rows, std::size_t count, int iterations, const Stream& stream,
                              const Cancel& cancel = {});

}  // namespace kvcast::policy
