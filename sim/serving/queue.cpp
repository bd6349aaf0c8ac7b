#include "serving/queue.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "serving/replica.hpp"

namespace kvcast::serving {
namespace {

// Hands requests that leave back to where they come from.
class Return final : public Exit {
 public:
  Return(traffic::Source& source, Observer& observer) : source_(source), observer_(observer) {}
  void left(const Outcome& outcome, Picoseconds now) override {
    observer_.ended(outcome);
    source_.ended(outcome.request, now);
  }

 private:
  traffic::Source& source_;
  Observer& observer_;
};

}  // namespace

void serve(traffic::Source& source, StepTimes& times, const Rules& rules, const FootprintOf& footprint_of,
           Observer& observer, const Cancel& cancel) {
  check(rules);
  Return exit(source, observer);
  Replica replica(times, rules, footprint_of, exit, observer);
  while (true) {
    cancel.check();
    while (source.next() <= replica.now()) replica.offer(source.take());
    if (replica.fill()) continue;
    if (source.next() < replica.next()) {
      replica.offer(source.take());
    } else if (replica.next() != traffic::kNever) {
      replica.land();
    } else {
      break;
    }
  }
  KVCAST_CHECK(replica.empty());
  observer.carried(replica.link().busy_in(), replica.link().busy_out());
}

}  // namespace kvcast::serving
