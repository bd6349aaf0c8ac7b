#include "engine/works.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace kvcast::engine {

void WorkTable::add(double latency, std::span<const Demand> demands) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  KVCAST_CHECK(rows_.size() < kMost && shares_.size() + demands.size() < kMost);
  KVCAST_CHECK(latency >= 0 && std::isfinite(latency));
  const std::size_t first_share = shares_.size(), first_fifo = fifos_.size();
  double alone = 0;
  for (const Demand& demand : demands) {
    KVCAST_CHECK(demand.resource < system_.resources.size());
    KVCAST_CHECK(demand.amount >= 0 && std::isfinite(demand.amount));
    if (demand.amount == 0) continue;
    const Resource& resource = system_.resources[demand.resource];
    KVCAST_CHECK(resource.rate > 0);
    // An amount so small that it vanishes is still a demand: the op has to get its fifos.
    const double time = std::max(demand.amount / resource.rate * kPicosPerSecond, 1e-300);
    alone = std::max(alone, time);
    if (resource.sharing == Sharing::kFifo) {
      const auto own = fifos_.begin() + static_cast<std::ptrdiff_t>(first_fifo);
      KVCAST_CHECK(std::find(own, fifos_.end(), demand.resource) == fifos_.end());
      fifos_.push_back(demand.resource);
    } else {
      shares_.push_back({demand.resource, time});
    }
  }
  KVCAST_CHECK(std::isfinite(alone));
  for (std::size_t i = first_share; i < shares_.size(); ++i) shares_[i].use /= alone;
  const auto count = [](std::size_t from, std::size_t to) { return static_cast<std::uint32_t>(to - from); };
  rows_.push_back({latency, alone, static_cast<std::uint32_t>(first_share), static_cast<std::uint32_t>(first_fifo),
                   count(first_share, shares_.size()), count(first_fifo, fifos_.size())});
}

}  // namespace kvcast::engine
