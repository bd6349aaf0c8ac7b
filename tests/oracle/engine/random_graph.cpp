#include "random_graph.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"

namespace oracle {

std::vector<Shape> shapes() {
  return {
      {.name = "mixed"},
      {.name = "fair", .fifo = 0, .demands = 0.6},
      {.name = "one fair resource", .lanes = 5, .resources = 1, .fifo = 0, .demands = 1, .no_latency = 0.5},
      {.name = "fair, many at once", .ops = 60, .lanes = 15, .resources = 6, .fifo = 0, .demands = 0.5, .after = 0.02},
      {.name = "fair, wide spread", .fifo = 0, .demands = 0.7, .after = 0.05, .spread = 4},
      {.name = "fair, weights", .lanes = 10, .fifo = 0.2, .demands = 0.5, .after = 0.05, .weight = 2},
      {.name = "fifo", .fifo = 1, .demands = 0.3, .after = 0.05},
      {.name = "one fifo", .lanes = 8, .resources = 1, .fifo = 1, .demands = 0.8, .after = 0.03},
      {.name = "many fifos an op", .lanes = 8, .resources = 6, .fifo = 0.8, .demands = 0.5, .after = 0.03},
      {.name = "equal times", .after = 0.1, .grid = 1},
      {.name = "equal times, fifo",
       .lanes = 8,
       .fifo = 1,
       .demands = 0.35,
       .after = 0.05,
       .no_latency = 0.4,
       .grid = 1},
      {.name = "equal times, no latencies", .fifo = 0.5, .demands = 0.2, .no_latency = 1, .grid = 1},
      {.name = "latencies only", .resources = 2, .demands = 0, .grid = 0.5},
      {.name = "one lane", .lanes = 1, .after = 0.3},
      {.name = "a lane an op", .ops = 25, .lanes = 25, .fifo = 0.5, .after = 0.1},
      {.name = "within picoseconds", .fifo = 0.5, .tiny = 0.4},
      {.name = "milliseconds", .grid = 0.2, .scale = 10e-3, .spread = 3},
      {.name = "seconds", .scale = 5},
  };
}

Graph random_graph(const Shape& shape, std::uint64_t seed) {
  const kvcast::Stream stream(seed);
  std::uint64_t i = 0;
  const auto uniform = [&] { return stream.uniform(i++); };
  const auto chance = [&](double p) { return uniform() < p; };
  const bool grid = chance(shape.grid);
  // Seconds; on the grid 1, 2, 3 or 4 times a tenth of the scale.
  const auto time = [&](double spread) -> Real {
    if (shape.tiny > 0 && chance(shape.tiny)) return std::pow(10.0, -14 + 3 * uniform());
    if (grid) return shape.scale * 0.1 * static_cast<double>(1 + stream.below(i++, 4));
    return shape.scale * std::pow(10.0, -spread * uniform());
  };
  Graph g;
  g.lanes = shape.lanes;
  for (int r = 0; r < shape.resources; ++r) {
    // Rates of real devices, or 1, which keeps equal times equal.
    g.resources.push_back({grid ? 1.0L : std::pow(10.0L, 9 + 4 * uniform()), chance(shape.fifo)});
  }
  for (int o = 0; o < shape.ops; ++o) {
    Op op;
    op.lane = static_cast<int>(stream.below(i++, static_cast<std::uint64_t>(shape.lanes)));
    op.latency = chance(shape.no_latency) ? 0 : time(1);
    for (int r = 0; r < shape.resources; ++r) {
      if (!chance(shape.demands)) continue;
      const Real amount = chance(0.05) ? 0 : time(shape.spread) * g.resources[static_cast<std::size_t>(r)].rate;
      op.demands.push_back({r, amount});
    }
    for (int a = std::max(0, o - 10); a < o; ++a) {
      if (chance(shape.after)) op.after.push_back(a);
    }
    if (shape.weight > 0) op.weight = std::exp2(shape.weight * (2 * uniform() - 1));
    g.ops.push_back(op);
  }
  return g;
}

}  // namespace oracle
