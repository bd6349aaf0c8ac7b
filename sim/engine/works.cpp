#include "engine/works.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

namespace kvcast::engine {

template <typename T>
std::span<const T> WorkTable::keep(const std::vector<T>& items) {
  if (items.empty()) return {};
  T* const copy = std::pmr::polymorphic_allocator<T>(&memory_).allocate(items.size());
  std::uninitialized_copy(items.begin(), items.end(), copy);
  return {copy, items.size()};
}

void WorkTable::add(double latency, std::span<const Demand> demands, double weight) {
  KVCAST_CHECK(latency >= 0 && std::isfinite(latency));
  KVCAST_CHECK(weight > 0 && std::isfinite(weight));
  shares_.clear();
  fifos_.clear();
  double alone = 0;
  for (const Demand& demand : demands) {
    KVCAST_CHECK(demand.resource < system_.resources.size());
    KVCAST_CHECK(demand.amount >= 0 && std::isfinite(demand.amount));
    if (demand.amount == 0) continue;
    const Resource& resource = system_.resources[demand.resource];
    KVCAST_CHECK(resource.rate > 0);
    // A negligible amount is still a demand: the op has to get its fifos.
    const double time = std::max(demand.amount / resource.rate * kPicosPerSecond, 1e-300);
    alone = std::max(alone, time);
    if (resource.sharing == Sharing::kFifo) {
      KVCAST_CHECK(std::find(fifos_.begin(), fifos_.end(), demand.resource) == fifos_.end());
      fifos_.push_back(demand.resource);
    } else {
      shares_.push_back({demand.resource, time});
    }
  }
  KVCAST_CHECK(std::isfinite(alone));
  for (Share& share : shares_) share.use /= alone;
  std::pmr::polymorphic_allocator<WorkTime> costs(&memory_);
  WorkTime* const cost = costs.allocate(1);
  costs_.push_back(std::construct_at(cost, WorkTime{latency, alone, keep(shares_), keep(fifos_), weight}));
}

}  // namespace kvcast::engine
