#include "simulate/cost_table.hpp"

namespace kvcast::simulate {
namespace {

using hardware::Resource;
using metrics::Bound;

Bound bound_by(Resource resource) {
  switch (resource) {
    case Resource::kHbm:
      return Bound::kHbm;
    case Resource::kTensor:
      return Bound::kTensor;
    case Resource::kVector:
      return Bound::kVector;
    case Resource::kZeroCopy:
    case Resource::kLinkIn:
    case Resource::kLinkOut:
    case Resource::kLink:
    case Resource::kPeer:
      return Bound::kLink;
    case Resource::kH2d:
    case Resource::kD2h:
      return Bound::kCopyEngine;
    case Resource::kDram:
      return Bound::kDram;
    case Resource::kCores:
      return Bound::kCores;
    default:
      return Bound::kHostThread;
  }
}

}  // namespace

void CostTable::price(lower::WorkId id) {
  const lower::Works::Entry& work = works_[id];
  const hardware::Cost cost = model_.cost(work.work, work.lane);
  Entry& entry = entries_[id];
  entry.latency = static_cast<double>(cost.latency);
  entry.pace = cost.pace;
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
