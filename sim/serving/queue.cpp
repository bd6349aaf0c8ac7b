#include "serving/queue.hpp"

#include "serving/fleet.hpp"

namespace kvcast::serving {

void serve(traffic::RequestSource& source, StepTimes& times, const Rules& rules, const FootprintOf& footprint_of,
           QueueObserver& observer, const Cancel& cancel) {
  Fleet one;
  one.in_order = true;
  serve_fleet(
      source, one, rules,
      [&](std::int64_t) {
        return ReplicaParts{&times, footprint_of, &observer};
      },
      cancel);
}

}  // namespace kvcast::serving
