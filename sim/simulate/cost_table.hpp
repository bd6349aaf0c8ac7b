// Costs of an experiment's distinct works on one machine, in the engine's terms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.hpp"
#include "hardware/cost_model.hpp"
#include "lower/flat.hpp"
#include "metrics/attribution.hpp"

namespace kvcast::simulate {

// Prices each work when it is first requested.
class CostTable {
 public:
  struct Entry {
    double latency = 0;  // picoseconds
    double weight = 1;
    std::uint32_t demands_begin = 0, demands_end = 0;
    hardware::Issue issue;  // valid if `issued`
    float uncertainty = 0;
    Origin origin = Origin::kExact;
    metrics::Bound bound = metrics::Bound::kKernelLatency;
    bool waits = false;       // latency, not work, limits the op
    bool issued = false;      // the copy's first call and its other calls are separate ops
    std::uint16_t fifos = 0;  // bit set of the fifo resources that the work occupies
    bool priced = false;
  };

  // Both must outlive the table.
  CostTable(const lower::Works& works, const hardware::CostModel& model) : works_(works), model_(model) {
    entries_.resize(works.size());
  }
  const Entry& operator[](lower::WorkId id) {
    if (!entries_[id].priced) price(id);
    return entries_[id];
  }
  // Valid until the next entry is priced.
  std::span<const engine::Demand> demands_of(const Entry& entry) const {
    return std::span(demands_).subspan(entry.demands_begin, entry.demands_end - entry.demands_begin);
  }
  const lower::Works& works() const { return works_; }
  const hardware::CostModel& model() const { return model_; }

 private:
  void price(lower::WorkId id);

  const lower::Works& works_;
  const hardware::CostModel& model_;
  std::vector<Entry> entries_;  // by work
  std::vector<engine::Demand> demands_;
};

}  // namespace kvcast::simulate
