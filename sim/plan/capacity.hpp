// The capacity of a service: the highest rate of requests at which a run with traffic meets its targets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/experiments.hpp"
#include "plan/target.hpp"

namespace kvcast::plan {

struct Capacity {
  double rate = 0;                  // requests a second; 0: none
  double low = 0, high = 0;         // with all numbers at the worse, and at the better, ends of their intervals
  std::int64_t clients = 0;         // of a closed loop, by which it serves that; 0: requests arrive at this rate
  std::int64_t max_num_seqs = 0;    // sequences at a time with which it is reached; 0: the engine's own
  ResultPtr result;                 // at this rate; at the lowest that was tried if there is none
  std::optional<std::string> miss;  // of a slightly higher rate
};

// Searches the rate of open-loop traffic, or the number of clients of a closed loop: doubling and halving from the
// run's own, then bisection to 2 %, first with the engine's own number of sequences at a time and then with fewer, as
// long as that serves more. The capacity of a closed loop is what the most clients are served with whom it meets the
// targets.
Capacity find_capacity(const config::Node& run, const std::vector<Target>& targets, Experiments& experiments);

// Requests a second that a run may serve at most, from one experiment at its own rate: the rate by the share of the
// time that it takes. A guess, by which settings are ordered.
double guessed_capacity(const config::Node& run, Experiments& experiments);

// Returns whether a run of open-loop traffic may meet the targets at a rate, by the better ends of intervals, with the
// engine's own number of sequences at a time or with a half, a quarter, ... of those that ran: an experiment for each.
bool may_reach(const config::Node& run, double rate, const std::vector<Target>& targets, Experiments& experiments);

// The targets of a service: those given, or that 99 % of the requests keep the SLO. Throws UserError for a run with
// neither.
std::vector<Target> service_targets(const config::Node& run, std::vector<Target> given);

}  // namespace kvcast::plan
