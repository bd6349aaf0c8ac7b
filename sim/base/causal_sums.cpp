// Queries are taken 48 at a time over keys in tiles of 1024. The exponentials of a tile are relative to the largest
// score that its row has had so far, as in flash attention; when a row is complete, its weights follow from its largest
// score and the sum of its exponentials, without computing the products again.
#include "base/causal_sums.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/floats.hpp"

namespace kvcast {
namespace {

constexpr std::size_t kTileRows = SimdLoops::kRows, kTileKeys = 1024;
constexpr std::size_t kStride = kTileKeys + 16;  // a power of two would put all rows into one set of the cache
constexpr std::size_t kTile = kTileRows * kStride;
constexpr double kLeast = 1e-12;
constexpr float kUnseen = -std::numeric_limits<float>::max();

class CausalRows {
 public:
  CausalRows(const SimdLoops& loops, const MatrixView& queries, const MatrixView& keys, float scale)
      : loops_(loops),
        all_(queries),
        d_(keys.cols),
        scale_(scale),
        tiles_((keys.rows + kTileKeys - 1) / kTileKeys),
        packed_(uninitialised_floats(tiles_ * kTileKeys * d_)),
        rows_(uninitialised_floats(tiles_ * kTile)),
        queries_(kTileRows * d_),
        tops_(tiles_) {
    for (std::size_t t = 0; t < tiles_; ++t) {
      const std::size_t first = t * kTileKeys;
      const std::size_t n = std::min(kTileKeys, keys.rows - first);
      if (n < kTileKeys) std::fill_n(&packed_[first * d_], kTileKeys * d_, 0.0f);
      loops_.pack_columns(keys.row(first), keys.stride, n, d_, &packed_[first * d_]);
    }
  }

  // Adds the weights of the queries from `first` on to sums, which has room for whole tiles.
  void add(std::size_t first, double* sums) {
    const std::size_t n = std::min(kTileRows, all_.rows - first), tiles = (first + n - 1) / kTileKeys + 1;
    loops_.pack_rows(all_.row(first), all_.stride, n, d_, queries_.data());
    std::array<float, kTileRows> top, weights;
    std::array<double, kTileRows> total = {};
    top.fill(kUnseen);
    for (std::size_t t = 0; t < tiles; ++t) {
      float* const scores = &rows_[t * kTile];
      loops_.multiply(queries_.data(), kTileRows, &packed_[t * kTileKeys * d_], kTileKeys, d_, scores, kStride, false);
      for (std::size_t r = 0; r < n; ++r) {
        float* const row = scores + r * kStride;
        const std::size_t seen = first + r + 1 - std::min(first + r + 1, t * kTileKeys);
        if (seen < kTileKeys) std::fill(row + seen, row + kTileKeys, kUnseen / std::max(1.0f, scale_));
        const float larger = std::max(top[r], scale_ * loops_.largest(row, kTileKeys));
        total[r] *= std::exp(static_cast<double>(top[r]) - static_cast<double>(larger));
        total[r] += loops_.exponentials(row, kTileKeys, scale_, larger);
        tops_[t][r] = top[r] = larger;
      }
    }
    for (std::size_t t = 0; t < tiles; ++t) {
      weights.fill(0.0f);
      for (std::size_t r = 0; r < n; ++r) {
        const double share = std::exp(static_cast<double>(tops_[t][r]) - static_cast<double>(top[r]));
        if (share > kLeast) weights[r] = static_cast<float>(share / total[r]);
      }
      loops_.add(weights.data(), &rows_[t * kTile], kStride, sums + t * kTileKeys, kTileKeys);
    }
  }

 private:
  const SimdLoops& loops_;
  const MatrixView& all_;
  std::size_t d_;
  float scale_;
  std::size_t tiles_;
  Floats packed_, rows_;
  std::vector<float> queries_;  // of the rows at hand: one component of all of them, then the next
  std::vector<std::array<float, kTileRows>> tops_;
};

}  // namespace

void add_causal_sums(const MatrixView& queries, const MatrixView& keys, float scale, std::span<double> sums,
                     const Cancel& cancel, const SimdLoops& loops) {
  KVCAST_CHECK(queries.rows == keys.rows && queries.cols == keys.cols && sums.size() == keys.rows && scale > 0);
  CausalRows rows(loops, queries, keys, scale);
  std::vector<double> whole_tiles((keys.rows + kTileKeys - 1) / kTileKeys * kTileKeys);
  for (std::size_t first = 0; first < queries.rows; first += kTileRows) {
    cancel.check();
    rows.add(first, whole_tiles.data());
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += whole_tiles[i];
}

}  // namespace kvcast
