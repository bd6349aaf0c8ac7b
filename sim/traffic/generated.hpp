// Requests that are drawn: open loop, all at once, closed loop, and the turns of sessions.
#pragma once

#include <functional>
#include <queue>
#include <vector>

#include "traffic/draws.hpp"
#include "traffic/request.hpp"
#include "traffic/slots.hpp"

namespace kvcast::traffic {

class Generated final : public RequestSource {
 public:
  explicit Generated(const config::Traffic& traffic);

  Picoseconds next() override;
  Request take() override;
  bool open() const override { return turns_ == 1 && traffic_.concurrency == 0; }
  void ended(const Request& request, Picoseconds now) override;

 private:
  Request first_turn(std::int64_t start) const;
  std::int64_t group_of(std::int64_t prompt) const;
  Request next_turn(const Request& before, Picoseconds now) const;
  std::int64_t turns_of(std::int64_t session) const;
  Picoseconds next_start() const;
  void draw_arrival();

  config::Traffic traffic_;
  std::int64_t turns_, starts_;  // turns of a session; sessions, or requests if a session has one turn
  TokenCounts prompts_, outputs_;
  Stream gaps_, groups_;
  std::vector<std::int32_t> cycle_;  // of prompts that come again and again, by number; empty if none does
  Slots slots_;
  std::int64_t started_ = 0, taken_ = 0;
  double elapsed_ = 0;       // gaps up to the next start, in units of the mean gap
  Picoseconds arrival_ = 0;  // of the next start by the arrival process
  struct Later {
    bool operator()(const Request& a, const Request& b) const {
      return a.arrival != b.arrival ? a.arrival > b.arrival : a.session > b.session;
    }
  };
  std::priority_queue<Request, std::vector<Request>, Later> later_turns_;
};

}  // namespace kvcast::traffic
