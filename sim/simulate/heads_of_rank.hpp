// Counts of one GPU under tensor parallelism.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "replay/draw.hpp"

namespace kvcast::simulate {

// Counts of the GPU with the most work among those that share a layer; all wait for it at the end of the layer. Each
// GPU has consecutive heads of every sequence. With fewer heads than GPUs, several GPUs hold the same head.
class HeadsOfRank {
 public:
  HeadsOfRank(replay::Draw& draw, int ranks) : draw_(&draw), ranks_(ranks) {}

  std::span<const policy::HeadCounts> operator()(int layer, std::int64_t step) {
    const std::span<const policy::HeadCounts> all = draw_->heads(layer, step);
    if (ranks_ == 1) return all;
    const std::size_t heads = all.size() / static_cast<std::size_t>(draw_->batch());
    const std::size_t mine = std::max<std::size_t>(1, heads / static_cast<std::size_t>(ranks_));
    std::int64_t most = -1;
    for (std::size_t first = 0; first + mine <= heads; first += mine) {
      std::int64_t load = 0;
      std::vector<policy::HeadCounts> part;
      for (std::size_t sequence = first; sequence < all.size(); sequence += heads) {
        for (std::size_t h = sequence; h < sequence + mine; ++h) {
          load += all[h].attended + all[h].scored + all[h].fetched;
          part.push_back(all[h]);
        }
      }
      if (load > most) most = load, busiest_ = std::move(part);
    }
    return busiest_;
  }

 private:
  replay::Draw* draw_;
  int ranks_;
  std::vector<policy::HeadCounts> busiest_;
};

}  // namespace kvcast::simulate
