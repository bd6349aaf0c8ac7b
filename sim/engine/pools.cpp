// The owners at a peak are recorded when the peak is left and not at every step of a climb: a KV cache that grows op by
// op costs one copy and not one per op.
#include "engine/pools.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::engine {

namespace {
// Sums of fractional bytes need not return to zero exactly.
double slack(double bytes) { return 1e-9 * bytes + 1e-3; }
}  // namespace

MemoryPools::MemoryPools(const System& system) : pools_(system.pools.size()) {
  for (std::size_t p = 0; p < pools_.size(); ++p) {
    KVCAST_CHECK(system.pools[p].capacity_bytes >= 0);
    pools_[p].capacity = system.pools[p].capacity_bytes;
    pools_[p].by_owner.assign(system.owners.size(), 0.0);
    pools_[p].peak.pool = static_cast<std::uint16_t>(p);
  }
}

bool MemoryPools::take(std::uint16_t pool, std::uint16_t owner, double bytes, Picoseconds at) {
  KVCAST_CHECK(pool < pools_.size() && bytes >= 0);
  State& state = pools_[pool];
  KVCAST_CHECK(owner < state.by_owner.size());
  if (state.in_use + bytes > state.capacity) return false;
  state.in_use += bytes;
  state.by_owner[owner] += bytes;
  if (state.in_use > state.peak.peak_bytes) {
    state.peak.peak_bytes = state.in_use;
    state.peak.at = at;
    state.at_peak = true;
  }
  return true;
}

void MemoryPools::give_back(std::uint16_t pool, std::uint16_t owner, double bytes) {
  KVCAST_CHECK(pool < pools_.size() && bytes >= 0);
  State& state = pools_[pool];
  KVCAST_CHECK(owner < state.by_owner.size());
  KVCAST_CHECK(bytes <= state.by_owner[owner] + slack(bytes));
  if (bytes == 0) return;
  leave_peak(pool);
  state.by_owner[owner] = std::max(0.0, state.by_owner[owner] - bytes);
  state.in_use = std::max(0.0, state.in_use - bytes);
}

void MemoryPools::leave_peak(std::uint16_t pool) {
  if (!pools_[pool].at_peak) return;
  pools_[pool].peak.owners = owners(pool);
  pools_[pool].at_peak = false;
}

std::vector<OwnerBytes> MemoryPools::owners(std::uint16_t pool) const {
  std::vector<OwnerBytes> result;
  const std::vector<double>& bytes = pools_[pool].by_owner;
  for (std::size_t o = 0; o < bytes.size(); ++o) {
    if (bytes[o] > 0) result.push_back({static_cast<std::uint16_t>(o), bytes[o]});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const OwnerBytes& a, const OwnerBytes& b) { return a.bytes > b.bytes; });
  return result;
}

std::vector<PoolPeak> MemoryPools::peaks() {
  std::vector<PoolPeak> result;
  for (std::uint16_t p = 0; p < pools_.size(); ++p) {
    leave_peak(p);
    result.push_back(pools_[p].peak);
  }
  return result;
}

}  // namespace kvcast::engine
