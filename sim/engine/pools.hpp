// Memory pools: what is in use, by whom, and the most that ever was.
#pragma once

#include <vector>

#include "engine/engine.hpp"

namespace kvcast::engine {

class MemoryPools {
 public:
  explicit MemoryPools(const System& system);

  // Takes bytes > 0 for an owner; false, and nothing taken, if they do not fit.
  bool take(std::uint16_t pool, std::uint16_t owner, double bytes, Picoseconds at);
  // Gives bytes > 0 back. Aborts if the owner does not have them.
  void give_back(std::uint16_t pool, std::uint16_t owner, double bytes);

  double in_use(std::uint16_t pool) const { return pools_[pool].in_use; }
  double capacity(std::uint16_t pool) const { return pools_[pool].capacity; }
  // What each owner has in the pool now, most first, ties by owner.
  std::vector<OwnerBytes> owners(std::uint16_t pool) const;
  // The peaks up to now, one a pool.
  std::vector<PoolPeak> peaks();

 private:
  struct State {
    double capacity = 0, in_use = 0;
    std::vector<double> by_owner;
    PoolPeak peak;
    bool at_peak = false;  // in use are exactly the peak's bytes; its owners are noted when that ends
  };
  void leave_peak(std::uint16_t pool);
  std::vector<State> pools_;
};

}  // namespace kvcast::engine
