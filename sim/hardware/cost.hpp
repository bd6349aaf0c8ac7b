// What an op costs: the time it spends by itself, and what it demands of shared resources.
#pragma once

#include <boost/container/small_vector.hpp>

#include <optional>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "hardware/resource.hpp"

namespace kvcast::hardware {

struct Demand {
  Resource resource = Resource::kHbm;
  double amount = 0;  // in the resource's unit, > 0; efficiencies are in it: alone, the op takes amount / rate
};

// Issuing of a copy whose engine is slower than the calls that feed it. The thread is busy with `first` before the copy
// can start and with `rest` beside it; it is free long before the copy ends. Where the calls are the slower side the
// thread stands among the demands instead, and the copy holds it until its end.
struct Issue {
  Resource thread = Resource::kHostThread;
  double first = 0, rest = 0;  // seconds
};

struct Cost {
  // The op spends the latency using nothing, then works until all demands are served together.
  Picoseconds latency = 0;
  boost::container::small_vector<Demand, 7> demands;  // each resource at most once
  std::optional<Issue> issue;
  double pace = 1;  // at which its speed grows where resources are shared

  double alone = 0;                // seconds with every resource idle, issue->first included
  std::optional<Resource> bound;   // what sets the pace alone: the largest demand; none where waiting is longer
  Origin origin = Origin::kExact;  // worst of the numbers that make up 5 % of `alone` or more
  float uncertainty = 0;           // relative half-width of the interval around `alone`
  bool extrapolated = false;       // one of these numbers was asked for outside the range it was established for
};

}  // namespace kvcast::hardware
