#include "simulate/cost_table.hpp"

namespace kvcast::simulate {
namespace {

using hardware::Resource;
using metrics::Bound;

// By Resource.
constexpr Bound kBounds[hardware::kResourceCount] = {
    Bound::kHbm,  Bound::kTensor, Bound::kVector,     Bound::kCopyEngine, Bound::kCopyEngine,
    Bound::kLink, Bound::kLink,   Bound::kLink,       Bound::kLink,       Bound::kLink,
    Bound::kDram, Bound::kCores,  Bound::kHostThread, Bound::kHostThread, Bound::kHostThread};

Bound bound_by(Resource resource) { return kBounds[static_cast<std::size_t>(resource)]; }

}  // namespace

void CostTable::price(lower::WorkId id) {
  const lower::Works::Entry& work = works_[id];
  const hardware::Cost cost = model_.cost(work.work, work.lane);
  Entry& entry = entries_[id];
  entry.latency = static_cast<double>(cost.latency);
  entry.weight = cost.weight;
  entry.demands_begin = static_cast<std::uint32_t>(demands_.size());
  for (const hardware::Demand& d : cost.demands) {
    demands_.push_back({static_cast<std::uint16_t>(d.resource), d.amount});
    if (hardware::is_fifo(d.resource)) {
      entry.fifos = static_cast<std::uint16_t>(entry.fifos | 1u << static_cast<unsigned>(d.resource));
    }
  }
  entry.demands_end = static_cast<std::uint32_t>(demands_.size());
  entry.issued = cost.issue.has_value();
  if (cost.issue) entry.issue = *cost.issue;
  entry.uncertainty = cost.uncertainty;
  entry.origin = cost.origin;
  entry.waits = !cost.bound;
  if (cost.bound) entry.bound = bound_by(*cost.bound);
  entry.priced = true;
}

}  // namespace kvcast::simulate
