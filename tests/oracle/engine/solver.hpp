// A direct solver for operation graphs: every op is evaluated again at every instant, and speeds are found by bisection
// on their definition. Shares no code with the engine.
#pragma once

#include <vector>

namespace oracle {

using Real = long double;  // seconds, units, units a second

struct Resource {
  Real rate = 1;
  bool fifo = false;
};
struct Demand {
  int resource = 0;
  Real amount = 0;
};
struct Op {
  int lane = 0;
  Real latency = 0;
  std::vector<Demand> demands;
  std::vector<int> after;  // indices
  Real weight = 1;         // relative rate at which its speed grows
};
struct Graph {
  std::vector<Resource> resources;
  int lanes = 0;
  std::vector<Op> ops;  // the index is the id; a lane runs its ops in this order
};
struct Times {
  Real start = 0, finish = 0;
};

std::vector<Times> solve(const Graph& graph);

// Speeds of ops at work together, 1 being alone: all grow at their weights until a resource of theirs is full or they
// reach 1. `works` are indices of ops.
std::vector<Real> speeds(const Graph& graph, const std::vector<int>& works);

}  // namespace oracle
