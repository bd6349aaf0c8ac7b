// Dhillon and Modha, "Concept Decompositions for Large Sparse Text Data using Clustering", Machine Learning 42, 2001:
// k-means on the unit sphere. Assignment is a matrix product over blocks of rows.
#include "policy_parts/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace kvcast::policy {
namespace {

constexpr std::size_t kBlock = 256;

void normalise(float* x, std::size_t d) {
  const float norm = std::sqrt(dot(x, x, d));
  if (norm > 0) {
    for (std::size_t j = 0; j < d; ++j) x[j] /= norm;
  }
}

// Draws `count` of n numbers, each set with equal probability: the start of a shuffle.
std::vector<std::size_t> draw_distinct(std::size_t n, std::size_t count, const Stream& stream) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(order[i], order[i + stream.below(i, n - i)]);
  order.resize(count);
  return order;
}

// Index of the first maximum. Two vectorised passes are faster than one that compares and records the index.
std::int32_t index_of_largest(std::span<const float> row) {
  return static_cast<std::int32_t>(std::find(row.begin(), row.end(), largest_of(row)) - row.begin());
}

// Labels all rows by the largest product with a centre. Returns whether any label changed.
bool assign(const MatrixView& unit, const MatrixView& centres, std::vector<std::int32_t>& labels,
            const Cancel& cancel) {
  std::vector<float> scores(kBlock * centres.rows);
  bool changed = false;
  for (std::size_t begin = 0; begin < unit.rows; begin += kBlock) {
    const std::size_t n = std::min(kBlock, unit.rows - begin);
    multiply_transposed({unit.row(begin), n, unit.cols, unit.stride}, centres, scores.data(), centres.rows, cancel);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t best = index_of_largest(std::span(scores).subspan(i * centres.rows, centres.rows));
      changed = changed || labels[begin + i] != best;
      labels[begin + i] = best;
    }
  }
  return changed;
}

// Sums of the members of each cluster.
std::vector<float> sum_members(const MatrixView& rows, const std::vector<std::int32_t>& labels, std::size_t clusters) {
  std::vector<float> sums(clusters * rows.cols);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    float* const sum = sums.data() + labels[i] * rows.cols;
    for (std::size_t j = 0; j < rows.cols; ++j) sum[j] += rows.row(i)[j];
  }
  return sums;
}

// Means of the unnormalised rows; removes empty clusters and renumbers the labels.
Clusters close(const MatrixView& rows, std::vector<std::int32_t> labels, std::size_t clusters) {
  const std::vector<float> sums = sum_members(rows, labels, clusters);
  std::vector<std::int64_t> sizes(clusters);
  for (const std::int32_t label : labels) ++sizes[label];
  Clusters out;
  std::vector<std::int32_t> renumbered(clusters);
  for (std::size_t c = 0; c < clusters; ++c) {
    if (sizes[c] == 0) continue;
    renumbered[c] = static_cast<std::int32_t>(out.sizes.size());
    out.sizes.push_back(sizes[c]);
    for (std::size_t j = 0; j < rows.cols; ++j) {
      out.centroids.push_back(sums[c * rows.cols + j] / static_cast<float>(sizes[c]));
    }
  }
  for (std::int32_t& label : labels) label = renumbered[label];
  out.labels = std::move(labels);
  return out;
}

}  // namespace

Clusters cluster_by_direction(const MatrixView& rows, std::size_t count, int iterations, const Stream& stream,
                              const Cancel& cancel) {
  KVCAST_CHECK(rows.rows >= 1 && count >= 1 && iterations >= 1);
  const std::size_t n = rows.rows, d = rows.cols;
  count = std::min(count, n);
  std::vector<float> unit(n * d), centres(count * d);
  for (std::size_t i = 0; i < n; ++i) {
    std::copy_n(rows.row(i), d, unit.data() + i * d);
    normalise(unit.data() + i * d, d);
  }
  const MatrixView points{unit.data(), n, d, d};
  const std::vector<std::size_t> first = draw_distinct(n, count, stream);
  for (std::size_t c = 0; c < count; ++c) std::copy_n(points.row(first[c]), d, centres.data() + c * d);
  std::vector<std::int32_t> labels(n, -1);
  for (int i = 0; i < iterations; ++i) {
    if (!assign(points, {centres.data(), count, d, d}, labels, cancel)) break;
    const std::vector<float> sums = sum_members(points, labels, count);
    for (std::size_t c = 0; c < count; ++c) {
      const float* const sum = sums.data() + c * d;
      if (dot(sum, sum, d) == 0) continue;  // an empty cluster's centre stays
      std::copy_n(sum, d, centres.data() + c * d);
      normalise(centres.data() + c * d, d);
    }
  }
  return close(rows, std::move(labels), count);
}

}  // namespace kvcast::policy
