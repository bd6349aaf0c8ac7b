// Memory pools: bytes in use, their owners, and the peak.
#pragma once

#include <vector>

#include "engine/engine.hpp"

namespace kvcast::engine {

class MemoryPools {
 public:
  explicit MemoryPools(const System& system);

  // Allocates bytes > 0 for an owner; returns false, and allocates nothing, if they do not fit.
  bool take(std::uint16_t pool, std::uint16_t owner, double bytes, Picoseconds at);
  // Frees bytes > 0. Aborts if the owner does not have them.
  void give_back(std::uint16_t pool, std::uint16_t owner, double bytes);

  double in_use(std::uint16_t pool) const { return pools_[pool].in_use; }
  double capacity(std::uint16_t pool) const { return pools_[pool].capacity; }
  // Bytes that each owner has in the pool now, most first, ties by owner.
  std::vector<OwnerBytes> owners(std::uint16_t pool) const;
  // The peaks up to now, one per pool.
  std::vector<PoolPeak> peaks();

 private:
  struct State {
    double capacity = 0, in_use = 0;
    std::vector<double> by_owner;
    PoolPeak peak;
    bool at_peak = false;  // bytes in use equal the peak; its owners are recorded when that ends
  };
  void leave_peak(std::uint16_t pool);
  std::vector<State> pools_;
};

}  // namespace kvcast::engine
