#include "serving/fleet.hpp"

#include <algorithm>
#include <deque>
#include <queue>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "serving/replica.hpp"
#include "serving/router.hpp"

namespace kvcast::serving {
namespace {

constexpr int kWindow = 1 << 14;  // requests that are dealt out at a time

// A replica with its number and the requests that have been dealt to it.
class Member final : public Exit {
 public:
  Member(std::int64_t number, ReplicaParts parts, const Rules& rules, traffic::Source* source)
      : number_(number),
        parts_(std::move(parts)),
        source_(source),
        replica_(*parts_.times, rules, parts_.footprint_of, *this, *parts_.observer) {}
  Replica& replica() { return replica_; }
  void deal(traffic::Request request) { dealt_.push_back(std::move(request)); }

  // All requests have left.
  void end() {
    KVCAST_CHECK(replica_.empty() && dealt_.empty());
    parts_.observer->carried(replica_.link().busy_in(), replica_.link().busy_out());
  }

  void left(Outcome& outcome, Picoseconds now) override {
    outcome.replica = number_;
    parts_.observer->ended(outcome);
    if (source_ != nullptr) source_->ended(outcome.request, now);
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

  std::int64_t number_;
  ReplicaParts parts_;
  traffic::Source* source_;  // null if it is open
  Replica replica_;
  std::deque<traffic::Request> dealt_;
};

// Round robin over requests that arrive whatever the replicas do: each replica is a queue of its own.
void serve_apart(traffic::Source& source, std::deque<Member>& members, int threads, const Cancel& cancel) {
  const std::size_t workers = std::clamp<std::size_t>(static_cast<std::size_t>(threads), 1, members.size());
  std::size_t next = 0;
  while (source.next() != traffic::kNever) {
    for (int i = 0; i < kWindow && source.next() != traffic::kNever; ++i) {
      members[next++ % members.size()].deal(source.take());
    }
    const Picoseconds until = source.next();
    parallel_for(workers, threads, [&](std::size_t worker) {
      for (std::size_t k = worker; k < members.size(); k += workers) members[k].advance(until, cancel);
    });
  }
}

// Replicas that wait for each other, one event after the other.
class Clock {
 public:
  Clock(traffic::Source& source, std::deque<Member>& members, Router& router)
      : source_(source), members_(members), router_(router), load_(members.size(), 0), touched_(members.size(), 0) {}

  void run(const Cancel& cancel) {
    while (true) {
      cancel.check();
      const Picoseconds now = std::min(source_.next(), next_landing());
      if (now == traffic::kNever) return;
      while (next_landing() <= now) {
        const std::size_t k = landings_.top().second;
        landings_.pop();
        members_[k].replica().land();
        touch(k);
      }
      do {
        while (source_.next() <= now) hand_over();
      } while (fill());
    }
  }

 private:
  using Landing = std::pair<Picoseconds, std::size_t>;

  // The earliest; those that an arrival has changed are dropped.
  Picoseconds next_landing() {
    while (!landings_.empty() && members_[landings_.top().second].replica().next() != landings_.top().first)
      landings_.pop();
    return landings_.empty() ? traffic::kNever : landings_.top().first;
  }

  void touch(std::size_t k) {
    load_[k] = members_[k].replica().load();
    if (std::exchange(touched_[k], 1) == 0) list_.push_back(k);
  }

  void hand_over() {
    traffic::Request request = source_.take();
    const std::size_t k = router_.route(request, load_);
    members_[k].replica().offer(std::move(request));
    touch(k);
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
    }
    return again;
  }

  traffic::Source& source_;
  std::deque<Member>& members_;
  Router& router_;
  std::vector<std::int64_t> load_;
  std::vector<char> touched_;
  std::vector<std::size_t> list_;  // of those touched
  std::priority_queue<Landing, std::vector<Landing>, std::greater<>> landings_;
};

}  // namespace

void serve_fleet(traffic::Source& source, const Fleet& fleet, const Rules& rules,
                 const std::function<ReplicaParts(std::int64_t)>& parts_of, const Cancel& cancel) {
  check(rules);
  if (fleet.replicas < 1) throw UserError("at least 1 replica is needed");
  const bool apart = fleet.routing == config::Routing::kRoundRobin && source.open() && !fleet.in_order;
  std::deque<Member> members;
  for (std::int64_t k = 0; k < fleet.replicas; ++k)
    members.emplace_back(k, parts_of(k), rules, apart ? nullptr : &source);
  if (apart) {
    serve_apart(source, members, fleet.threads, cancel);
  } else {
    const std::unique_ptr<Router> router = make_router(fleet.routing, rules.block, rules.blocks);
    Clock(source, members, *router).run(cancel);
  }
  for (Member& member : members) member.end();
}

}  // namespace kvcast::serving
