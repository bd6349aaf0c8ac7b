#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/floats.hpp"
#include "base/index.hpp"
#include "policies/keydiff.hpp"

namespace kvcast::policy {
namespace {

constexpr double kLeastNorm = 1e-12;  // a zero key is similar to nothing

double norm_of(const float* key, std::size_t d) { return std::sqrt(static_cast<double>(dot(key, key, d))); }

// Σ of the held keys, each divided by its norm first if `normalised`.
std::vector<float> sum_keys(const MatrixView& keys, const Held& held, bool normalised) {
  std::vector<double> sum(keys.cols, 0.0);
  for (const std::int32_t i : held) {
    const float* const key = keys.row(index(i));
    const double weight = normalised ? 1 / std::max(norm_of(key, keys.cols), kLeastNorm) : 1;
    for (std::size_t j = 0; j < keys.cols; ++j) sum[j] += weight * key[j];
  }
  return {sum.begin(), sum.end()};
}

std::vector<float> median_key(const MatrixView& keys, const Held& held) {
  std::vector<float> median(keys.cols), column(held.size());
  const auto middle = column.begin() + (held.size() / 2);
  for (std::size_t j = 0; j < keys.cols; ++j) {
    for (std::size_t i = 0; i < held.size(); ++i) column[i] = keys.row(index(held[i]))[j];
    std::nth_element(column.begin(), middle, column.end());
    median[j] = *middle;
    if (held.size() % 2 == 0) median[j] = (median[j] + *std::max_element(column.begin(), middle)) / 2;
  }
  return median;
}

double distance(const float* a, const float* b, std::size_t d) {
  float partial[kSimdWidth] = {};
  std::size_t j = 0;
  for (; j + kSimdWidth <= d; j += kSimdWidth) {
    for (std::size_t l = 0; l < kSimdWidth; ++l) partial[l] += (a[j + l] - b[j + l]) * (a[j + l] - b[j + l]);
  }
  for (; j < d; ++j) partial[0] += (a[j] - b[j]) * (a[j] - b[j]);
  double sum = 0;
  for (const float p : partial) sum += p;
  return std::sqrt(sum);
}

// Σ of the distances of each held key to all of them, by ‖a‖² + ‖b‖² − 2·a·b: a matrix product instead of n² loops.
void sum_distances(const MatrixView& keys, const Held& held, std::vector<float>& out) {
  constexpr std::size_t kRows = 256;
  const std::size_t n = held.size(), d = keys.cols;
  std::vector<float> rows, squares, products(std::min(kRows, n) * n);
  for (const std::int32_t i : held) {
    const float* const key = keys.row(index(i));
    rows.insert(rows.end(), key, key + d);
    squares.push_back(dot(key, key, d));
  }
  out.assign(n, 0.0f);
  for (std::size_t first = 0; first < n; first += kRows) {
    const std::size_t count = std::min(kRows, n - first);
    multiply_transposed({rows.data() + first * d, count, d, d}, {rows.data(), n, d, d}, products.data(), n);
    for (std::size_t i = 0; i < count; ++i) {
      const float own = squares[first + i];
      float* const row = products.data() + i * n;
      for (std::size_t j = 0; j < n; ++j) row[j] = std::sqrt(std::max(0.0f, own + squares[j] - 2 * row[j]));
      row[first + i] = 0;
      double sum = 0;
      for (std::size_t j = 0; j < n; ++j) sum += row[j];
      out[first + i] = static_cast<float>(sum);
    }
  }
}

// Cosines and dot products with all keys can be summed by one product with their sum; distances cannot.
std::vector<float> anchor_of(const MatrixView& keys, const Held& held, Anchor anchor, Metric metric) {
  if (anchor == Anchor::kMedian) return median_key(keys, held);
  const bool pairwise = anchor == Anchor::kPairwise;
  std::vector<float> sum = sum_keys(keys, held, pairwise ? metric == Metric::kCosine : anchor == Anchor::kMean);
  if (!pairwise) {
    for (float& x : sum) x /= static_cast<float>(held.size());
  }
  return sum;
}

double similarity(const float* key, const std::vector<float>& anchor, double anchor_norm, Metric metric) {
  const std::size_t d = anchor.size();
  if (metric == Metric::kEuclid) return -distance(key, anchor.data(), d);
  const double product = dot(key, anchor.data(), d);
  if (metric == Metric::kDot) return product;
  return product / (std::max(norm_of(key, d), kLeastNorm) * anchor_norm);
}

// The negated similarity of each held key to an anchor.
void score_to(const MatrixView& keys, const Held& held, const std::vector<float>& anchor, Metric metric,
              std::vector<float>& out) {
  const double norm = std::max(norm_of(anchor.data(), anchor.size()), kLeastNorm);
  out.resize(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    out[i] = static_cast<float>(-similarity(keys.row(index(held[i])), anchor, norm, metric));
  }
}

}  // namespace

void score_distinctness(const MatrixView& keys, const Held& held, Anchor anchor, Metric metric,
                        std::vector<float>& out) {
  out.assign(held.size(), 0.0f);
  if (held.empty()) return;
  if (anchor == Anchor::kPairwise && metric == Metric::kEuclid) {
    if (held.size() >= 1024) return sum_distances(keys, held, out);
    for (std::size_t i = 0; i < held.size(); ++i) {
      double sum = 0;
      const float* const key = keys.row(index(held[i]));
      for (const std::int32_t j : held) sum += distance(key, keys.row(index(j)), keys.cols);
      out[i] = static_cast<float>(sum);
    }
    return;
  }
  score_to(keys, held, anchor_of(keys, held, anchor, metric), metric, out);
}

void RunningDistinctness::sort_columns(const Held& held) {
  columns_.assign(keys_.cols, std::vector<float>(held.size()));
  for (std::size_t j = 0; j < keys_.cols; ++j) {
    for (std::size_t i = 0; i < held.size(); ++i) columns_[j][i] = keys_.row(index(held[i]))[j];
    std::sort(columns_[j].begin(), columns_[j].end());
  }
}

void RunningDistinctness::update_columns(const Held& added, const Held& removed) {
  for (std::size_t j = 0; j < keys_.cols; ++j) {
    std::vector<float>& column = columns_[j];
    for (const std::int32_t i : removed) {
      column.erase(std::lower_bound(column.begin(), column.end(), keys_.row(index(i))[j]));
    }
    for (const std::int32_t i : added) {
      const float x = keys_.row(index(i))[j];
      column.insert(std::upper_bound(column.begin(), column.end(), x), x);
    }
  }
}

void RunningDistinctness::update_sums(const Held& held, const Held& added, const Held& removed) {
  const auto apart = [&](std::int32_t a, std::int32_t b) {
    return distance(keys_.row(index(a)), keys_.row(index(b)), keys_.cols);
  };
  std::vector<double> sums(held.size(), 0.0);
  std::size_t old = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    while (old < known_.size() && known_[old] < held[i]) ++old;
    if (old < known_.size() && known_[old] == held[i]) {
      sums[i] = sums_[old];
      for (const std::int32_t j : added) sums[i] += apart(held[i], j);
      for (const std::int32_t j : removed) sums[i] -= apart(held[i], j);
    } else {
      for (const std::int32_t j : held) sums[i] += apart(held[i], j);
    }
  }
  sums_ = std::move(sums);
}

void RunningDistinctness::score(const Held& held, std::vector<float>& out) {
  const bool by_pairs = anchor_ == Anchor::kPairwise && metric_ == Metric::kEuclid;
  if (anchor_ != Anchor::kMedian && !by_pairs) return score_distinctness(keys_, held, anchor_, metric_, out);
  Held added, removed;
  std::set_difference(held.begin(), held.end(), known_.begin(), known_.end(), std::back_inserter(added));
  std::set_difference(known_.begin(), known_.end(), held.begin(), held.end(), std::back_inserter(removed));
  if (by_pairs) {
    update_sums(held, added, removed);
    out.assign(sums_.begin(), sums_.end());
  } else {
    if (columns_.empty() || added.size() + removed.size() > 16) {
      sort_columns(held);
    } else {
      update_columns(added, removed);
    }
    std::vector<float> median;
    for (const std::vector<float>& column : columns_) {
      const std::size_t n = column.size();
      median.push_back(n % 2 == 0 ? (column[n / 2 - 1] + column[n / 2]) / 2 : column[n / 2]);
    }
    score_to(keys_, held, median, metric_, out);
  }
  known_ = held;
}

KeyDiffOperations count_keydiff(double n, double d) {
  KeyDiffOperations all;
  // Norms of n keys; the keys divided by their norms; their mean; n products with it; its norm; n products of norms, n
  // comparisons with the least norm (counted as additions) and n divisions.
  all.multiplications = n * d + n * d + n * d + d + n;
  all.additions = n * (d - 1) + (n - 1) * d + n * (d - 1) + (d - 1) + n;
  all.divisions = n + 1 + n;
  all.roots = n + 1;
  return all;
}

}  // namespace kvcast::policy
