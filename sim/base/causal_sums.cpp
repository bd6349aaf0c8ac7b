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

// clang-format off
#ifdef __AVX2__
#define KVCAST_LANES 8
#else
#define KVCAST_LANES 4
#endif
#define KVCAST_ROWS 6
#include "base/causal_kernel.hpp"
// clang-format on

namespace kvcast {

#ifdef KVCAST_AVX512
CausalTile causal_tile_avx512();
#endif

namespace {

constexpr std::size_t kTileRows = CausalTile::kRows, kTileKeys = CausalTile::kKeys;
constexpr std::size_t kTile = kTileRows * CausalTile::kStride;
constexpr double kLeast = 1e-12;
constexpr float kUnseen = -std::numeric_limits<float>::max();

class CausalRows {
 public:
  CausalRows(const CausalTile& tile, const MatrixView& queries, const MatrixView& keys, float scale)
      : tile_(tile),
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
      tile_.pack(keys.row(first), keys.stride, std::min(kTileKeys, keys.rows - first), d_, &packed_[first * d_]);
    }
  }

  // Adds the weights of the queries from `first` on to sums, which has room for whole tiles.
  void add(std::size_t first, double* sums) {
    const std::size_t n = std::min(kTileRows, all_.rows - first), tiles = (first + n - 1) / kTileKeys + 1;
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = 0; c < d_; ++c) queries_[c * kTileRows + r] = all_.row(first + r)[c];
    }
    std::array<float, kTileRows> top, weights;
    std::array<double, kTileRows> total = {};
    top.fill(kUnseen);
    for (std::size_t t = 0; t < tiles; ++t) {
      float* const scores = &rows_[t * kTile];
      tile_.score(queries_.data(), &packed_[t * kTileKeys * d_], d_, scores);
      for (std::size_t r = 0; r < n; ++r) {
        float* const row = scores + r * CausalTile::kStride;
        const std::size_t seen = first + r + 1 - std::min(first + r + 1, t * kTileKeys);
        if (seen < kTileKeys) std::fill(row + seen, row + kTileKeys, kUnseen / std::max(1.0f, scale_));
        const float larger = std::max(top[r], scale_ * tile_.largest(row));
        total[r] *= std::exp(static_cast<double>(top[r]) - static_cast<double>(larger));
        total[r] += tile_.exponentials(row, scale_, larger);
        tops_[t][r] = top[r] = larger;
      }
    }
    for (std::size_t t = 0; t < tiles; ++t) {
      weights.fill(0.0f);
      for (std::size_t r = 0; r < n; ++r) {
        const double share = std::exp(static_cast<double>(tops_[t][r]) - static_cast<double>(top[r]));
        if (share > kLeast) weights[r] = static_cast<float>(share / total[r]);
      }
      tile_.add(weights.data(), &rows_[t * kTile], sums + t * kTileKeys);
    }
  }

 private:
  const CausalTile& tile_;
  const MatrixView& all_;
  std::size_t d_;
  float scale_;
  std::size_t tiles_;
  Floats packed_, rows_;
  std::vector<float> queries_;  // of the rows at hand: one component of all of them, then the next
  std::vector<std::array<float, kTileRows>> tops_;
};

std::vector<CausalTile> tiles_of_cpu() {
  std::vector<CausalTile> tiles = {{pack, score, largest, exponentials, add}};
#ifdef KVCAST_AVX512
  if (__builtin_cpu_supports("x86-64-v4")) tiles.push_back(causal_tile_avx512());
#endif
  return tiles;
}

}  // namespace

std::span<const CausalTile> causal_tiles() {
  static const std::vector<CausalTile> tiles = tiles_of_cpu();
  return tiles;
}

void add_causal_sums(const CausalTile& tile, const MatrixView& queries, const MatrixView& keys, float scale,
                     std::span<double> sums, const Cancel& cancel) {
  KVCAST_CHECK(queries.rows == keys.rows && queries.cols == keys.cols && sums.size() == keys.rows && scale > 0);
  CausalRows rows(tile, queries, keys, scale);
  std::vector<double> whole_tiles((keys.rows + kTileKeys - 1) / kTileKeys * kTileKeys);
  for (std::size_t first = 0; first < queries.rows; first += kTileRows) {
    cancel.check();
    rows.add(first, whole_tiles.data());
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += whole_tiles[i];
}

void add_causal_sums(const MatrixView& queries, const MatrixView& keys, float scale, std::span<double> sums,
                     const Cancel& cancel) {
  add_causal_sums(causal_tiles().back(), queries, keys, scale, sums, cancel);
}

}  // namespace kvcast
