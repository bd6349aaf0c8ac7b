// Random operation graphs of many shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "solver.hpp"

namespace oracle {

// A family of graphs. Chances are probabilities.
struct Shape {
  std::string name;
  int ops = 40, lanes = 6, resources = 4;
  double fifo = 0.3;     // chance of a resource to be fifo
  double demands = 0.4;  // chance of a demand of an op on a resource
  double after = 0.15;   // chance of a dependency on each of the 10 ops before
  double no_latency = 0.2;
  double grid = 0;       // chance of a graph to have round times only, so that many are equal
  double tiny = 0;       // chance of a latency or demand to be far below a picosecond up to a few
  double scale = 10e-6;  // seconds
  double spread = 1;     // of demands: decades
  double weight = 0;     // of ops: from 2^-weight to 2^weight
};

std::vector<Shape> shapes();
Graph random_graph(const Shape& shape, std::uint64_t seed);

}  // namespace oracle
