// The replicas of a fleet, and the clock that they share.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "base/cancel.hpp"
#include "base/error.hpp"
#include "serving/fleet.hpp"
#include "serving/replica.hpp"
#include "serving/router.hpp"

namespace kvcast::serving {

// Receives what happens to the requests of replicas.
class Home {
 public:
  virtual ~Home() = default;
  virtual void left(std::size_t replica, Departure& outcome, Picoseconds now) = 0;
  virtual void reserved(std::size_t /*replica*/, std::int64_t /*request*/, std::int64_t /*there*/, Picoseconds) {}
};

// A replica with its number and the requests that have been dealt to it.
class Member final : public Exit {
 public:
  // home: null if nothing follows from what happens.
  Member(std::size_t number, ReplicaParts parts, const Rules& rules, Home* home)
      : number_(number),
        parts_(std::move(parts)),
        home_(home),
        replica_(*parts_.times, rules, parts_.footprint_of, *this, *parts_.observer) {}
  Replica& replica() { return replica_; }
  const FootprintOf& footprint_of() const { return parts_.footprint_of; }
  void deal(traffic::Request request) { dealt_.push_back(std::move(request)); }
  void report(Departure& outcome) {
    outcome.replica = static_cast<std::int64_t>(number_);
    parts_.observer->ended(outcome);
  }

  // All requests have left.
  void end() {
    KVCAST_CHECK(replica_.empty() && dealt_.empty());
    parts_.observer->carried(replica_.link().busy_in(), replica_.link().busy_out());
  }

  void left(Departure& outcome, Picoseconds now) override {
    home_ == nullptr ? report(outcome) : home_->left(number_, outcome, now);
  }
  void reserved(const traffic::Request& request, std::int64_t there, Picoseconds now) override {
    home_->reserved(number_, request.id, there, now);
  }

  // Does all that happens before `until`, when further requests may be dealt.
  void advance(Picoseconds until, const Cancel& cancel) {
    const auto arrival = [&] { return dealt_.empty() ? traffic::kNever : dealt_.front().at_engine(); };
    while (true) {
      cancel.check();
      while (arrival() < until && arrival() <= replica_.now()) offer();
      if (replica_.fill()) continue;
      if (arrival() < until && arrival() < replica_.next()) {
        offer();
      } else if (replica_.next() < until) {
        replica_.land();
      } else {
        return;
      }
    }
  }

 private:
  void offer() {
    replica_.offer(std::move(dealt_.front()));
    dealt_.pop_front();
  }

  std::size_t number_;
  ReplicaParts parts_;
  Home* home_;
  Replica replica_;
  std::deque<traffic::Request> dealt_;
};

// Replicas that wait for each other, one event after the other.
class FleetClock : public Home {
 public:
  FleetClock(traffic::RequestSource& source, std::deque<Member>& members, std::unique_ptr<Router> router)
      : source_(source), members_(members), router_(std::move(router)) {}

  void run(const Cancel& cancel) {
    load_.assign(members_.size(), 0), touched_.assign(members_.size(), 0);
    while (true) {
      cancel.check();
      const Picoseconds now = std::min({source_.next(), next_landing(), next_event()});
      if (now == traffic::kNever) return;
      while (next_landing() <= now) {
        const std::size_t k = landings_.top().second;
        landings_.pop();
        members_[k].replica().land();
        touch(k);
      }
      do {
        while (next_event() <= now) happen(now);
        while (source_.next() <= now) hand_over();
      } while (fill() || next_event() <= now);
    }
  }

  void left(std::size_t k, Departure& outcome, Picoseconds now) override {
    members_[k].report(outcome);
    source_.ended(outcome.request, now);
  }

 protected:
  // The next of other events than arrivals and the ends of passes.
  virtual Picoseconds next_event() { return traffic::kNever; }
  virtual void happen(Picoseconds /*now*/) {}
  virtual void hand_over() {
    traffic::Request request = source_.take();
    const std::size_t k = router_->route(request, load_);
    offer(k, std::move(request));
  }

  void offer(std::size_t k, traffic::Request request) {
    members_[k].replica().offer(std::move(request));
    touch(k);
  }
  void touch(std::size_t k) {
    load_[k] = members_[k].replica().load();
    if (std::exchange(touched_[k], 1) == 0) list_.push_back(k);
  }

  traffic::RequestSource& source_;
  std::deque<Member>& members_;
  std::unique_ptr<Router> router_;
  std::vector<std::int64_t> load_;

 private:
  using Landing = std::pair<Picoseconds, std::size_t>;

  // The earliest; those that an arrival has changed are dropped.
  Picoseconds next_landing() {
    while (!landings_.empty() && members_[landings_.top().second].replica().next() != landings_.top().first)
      landings_.pop();
    return landings_.empty() ? traffic::kNever : landings_.top().first;
  }

  // Fills the replicas that something has happened to. True if one has rejected a request, from which others may
  // follow.
  bool fill() {
    bool again = false;
    std::ranges::sort(list_);
    for (const std::size_t k : std::exchange(list_, {})) {
      touched_[k] = 0;
      Replica& replica = members_[k].replica();
      if (replica.fill()) {
        touch(k);
        again = true;
      } else if (replica.next() != traffic::kNever) {
        landings_.emplace(replica.next(), k);
      }
      load_[k] = replica.load();
    }
    return again;
  }

  std::vector<char> touched_;
  std::vector<std::size_t> list_;  // of those touched
  std::priority_queue<Landing, std::vector<Landing>, std::greater<>> landings_;
};

// The clock of replicas that read prompts, the last ones, and of those that decode, the first ones. All must outlive
// it.
std::unique_ptr<FleetClock> make_apart_clock(traffic::RequestSource& source, std::deque<Member>& members,
                                             const Fleet& fleet, const Rules& rules);

}  // namespace kvcast::serving
