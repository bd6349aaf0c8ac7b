// One engine that is handed its requests: passes one directly after the other, up to Rules::in_flight of them composed
// before the first has ended.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "serving/scheduler.hpp"

namespace kvcast::serving {

// Whoever hands requests over drives it: the replica with the earliest next() lands, what has arrived by then is
// offered, and it is filled again. Passes of the same sequences are one run; what the run changes is noted when it
// lands, so that a request that arrives meanwhile can cut it short.
class Replica {
 public:
  // All must outlive the replica. `exit` receives requests that leave, `observer` runs and preemptions.
  Replica(StepTimes& times, const Rules& rules, const FootprintOf& footprint_of, Exit& exit, QueueObserver& observer);

  // A request reaches the engine, at Request::at_engine(); in order of that.
  void offer(traffic::Request request);
  // The cache of a request has come from elsewhere (Role::kDecode), or that request will never come; it has been sent
  // (Role::kPrefill). Now.
  void deliver(std::int64_t id, Picoseconds now);
  void drop(std::int64_t id, Picoseconds now);
  void sent(std::int64_t id, Picoseconds now);
  // Composes passes as far as rules and requests allow. True if the head of the queue was rejected instead, as what
  // does not fit an empty engine never will: requests may follow from that, and it must be filled again.
  bool fill();
  // End of the passes at which it composes again; kNever if nothing runs.
  Picoseconds next() const;
  // Goes to next().
  void land();

  Picoseconds now() const { return state_.now; }
  // Requests that were offered and have not left.
  std::int64_t load() const { return state_.in_service; }
  const LinkQueues& link() const { return state_.link; }
  // Returns whether no request has left anything behind.
  bool empty() const { return scheduler_->used() == 0 && state_.running.empty(); }

 private:
  // A run of passes that is composed and has not ended.
  struct Flight {
    Pass pass;
    StepTime time;
    std::int64_t count = 1;
    std::int64_t blocks = 0;          // in use when it was composed
    std::int64_t waiting_before = 0;  // requests that waited until it was composed
    Picoseconds start = 0;
    bool ends = false;  // a request has its last token in it
    Picoseconds end() const { return start + time.sum(count); }
  };

  bool closed() const;
  void changes(Picoseconds now);
  void destroy_gone();
  std::int64_t waiting_before() const;
  bool launch();
  StepTime time_of(const Pass& pass);
  void load(Flight& flight);
  bool links() const { return state_.tiers.any() || rules_.recalled_bytes > 0 || rules_.staging > 0; }
  std::int64_t repeats(const Flight& flight);
  void cut_before(Picoseconds arrival);
  void commit();
  void report(const Flight& flight);
  void add_gap(Picoseconds since);
  std::span<const PassPart> parts_of(const Pass& pass);
  void settle(Flight& flight);
  void add_reading(Departure& outcome, const Chunk& chunk, const Flight& flight);
  std::int64_t landing(const Flight& flight) const;
  void count_results(QueuedRequest& entry, std::int64_t n);
  void take_down();

  StepTimes& times_;
  const Rules& rules_;
  QueueObserver& observer_;
  State state_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Flight> flights_;
  bool open_ = false;     // the last flight can be cut short: nothing has been noted of its passes after the first
  bool waiting_ = false;  // until the next landing: nothing more could be composed
  Flight spare_;          // keeps its memory
  std::vector<Decoding> decoding_;
  std::vector<Chunk> chunks_;
  std::vector<Gap> gaps_;
  std::vector<Picoseconds> arrivals_;
  std::vector<PassPart> parts_;
  std::vector<QueuedRequest*> ended_, gone_;  // in this landing; and all to which something may still refer
};

}  // namespace kvcast::serving
