// The works of a run in the form in which the engine computes.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/fluid.hpp"

namespace kvcast::engine {

// A work with its demands converted to the time that an op works alone, the largest demand / rate, and the shares of
// resources that it then uses.
struct WorkTime {
  double latency = 0, alone = 0;  // picoseconds; alone is 0 without demands
  std::span<const Share> shares;  // of fair resources
  std::span<const std::uint16_t> fifos;
  double weight = 1;
};

// Works are added once, however many ops have them. Costs keep their addresses until the end of the run.
class WorkTable {
 public:
  explicit WorkTable(const System& system) : system_(system) {}

  // Adds the next work. Aborts on invalid numbers and resources.
  void add(double latency, std::span<const Demand> demands, double weight = 1);
  // Aborts on an unknown id.
  const WorkTime& operator[](WorkId id) const {
    KVCAST_CHECK(id < costs_.size());
    return *costs_[id];
  }

 private:
  template <typename T>
  std::span<const T> keep(const std::vector<T>& items);

  const System& system_;
  std::pmr::monotonic_buffer_resource memory_;  // storage of what costs_ refers to
  std::vector<const WorkTime*> costs_;
  std::vector<Share> shares_;  // scratch
  std::vector<std::uint16_t> fifos_;
};

}  // namespace kvcast::engine
