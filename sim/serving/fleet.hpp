// Replicas that serve requests together, on one clock.
#pragma once

#include <cstdint>
#include <functional>

#include "base/cancel.hpp"
#include "config/deployment.hpp"
#include "serving/queue.hpp"

namespace kvcast::serving {

struct Fleet {
  std::int64_t replicas = 1;
  config::Routing routing = config::Routing::kRoundRobin;
  int threads = 1;        // at most so many; the results do not depend on it
  bool in_order = false;  // reports of all replicas come in order of time, from one thread
};

// What a replica works with. `times` and the footprints are used from one thread at a time only if no other replica
// has the same; reports of a replica come from one thread at a time.
struct ReplicaParts {
  StepTimes* times = nullptr;
  FootprintOf footprint_of;
  Observer* observer = nullptr;
};

// Serves all requests of the source as serve() does, with the same rules in each replica. Replicas run in parallel if
// they do not depend on each other: round robin over a source that is open().
void serve_fleet(traffic::Source& source, const Fleet& fleet, const Rules& rules,
                 const std::function<ReplicaParts(std::int64_t)>& parts_of, const Cancel& cancel = {});

}  // namespace kvcast::serving
