// Properties of every graph, independent of its times.
#include <catch2/catch.hpp>

#include <algorithm>

#include "base/random.hpp"
#include "runs.hpp"

namespace kvcast::tests {

using namespace engine;

namespace {

struct Graph {
  System system;
  std::vector<LoneOp> ops;
};

Graph random_graph(std::uint64_t seed, bool with_fifos = true) {
  const Stream stream(seed);
  std::uint64_t i = 0;
  const auto uniform = [&] { return stream.uniform(i++); };
  Graph g;
  g.system = make_system(6, {fair(2), fair(3), with_fifos ? fifo(1) : fair(1), with_fifos ? fifo(5) : fair(5)});
  for (OpId o = 0; o < 60; ++o) {
    LoneOp op = make_op(static_cast<int>(stream.below(i++, 6)), uniform() < 0.3 ? 0 : uniform() * 5 * kUs);
    for (std::uint16_t r = 0; r < 4; ++r) {
      if (uniform() < 0.4) op.demands.push_back({r, uniform() * 20 * kUs});
    }
    for (OpId a = std::max<OpId>(0, o - 8); a < o; ++a) {
      if (uniform() < 0.15) op.after.push_back(a);
    }
    g.ops.push_back(op);
  }
  return g;
}

double alone(const System& system, const LoneOp& op) {
  double longest = 0;
  for (const Demand& d : op.demands) {
    longest = std::max(longest, d.amount / system.resources[d.resource].rate * kPicosPerSecond);
  }
  return longest;
}

// The longest path through dependencies and lanes if every op is as fast as alone.
double critical_path(const Graph& g) {
  std::vector<double> finish(g.ops.size()), lane(g.system.lanes.size(), 0.0);
  for (std::size_t i = 0; i < g.ops.size(); ++i) {
    double start = lane[g.ops[i].lane];
    for (const OpId a : g.ops[i].after) start = std::max(start, finish[static_cast<std::size_t>(a)]);
    finish[i] = lane[g.ops[i].lane] = start + g.ops[i].latency + alone(g.system, g.ops[i]);
  }
  return *std::max_element(finish.begin(), finish.end());
}

}  // namespace

TEST_CASE("times scale with latencies and rates") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Graph g = random_graph(seed);
    const Finished once = run_all(g.system, g.ops);
    constexpr double k = 8;  // a power of two: no rounding, so that everything is equal except the last picosecond
    for (Resource& r : g.system.resources) r.rate /= k;
    for (LoneOp& op : g.ops) op.latency *= k;
    const Finished scaled = run_all(g.system, g.ops);
    CHECK(scaled.order == once.order);
    CHECK(static_cast<double>(scaled.outcome.makespan) ==
          Approx(k * static_cast<double>(once.outcome.makespan)).margin(k));
  }
}

TEST_CASE("no run is faster than its critical path or busiest resource, or slower than one op at a time") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const Graph g = random_graph(seed);
    const double makespan = static_cast<double>(run_all(g.system, g.ops).outcome.makespan);
    CHECK(makespan + 1 >= critical_path(g));
    double in_turn = 0;
    std::vector<double> load(g.system.resources.size(), 0.0);
    for (const LoneOp& op : g.ops) {
      in_turn += op.latency + alone(g.system, op);
      for (const Demand& d : op.demands) {
        load[d.resource] += d.amount / g.system.resources[d.resource].rate * kPicosPerSecond;
      }
    }
    for (const double l : load) CHECK(makespan + 1 >= l);
    CHECK(makespan - 1 <= in_turn);
  }
}

TEST_CASE("records respect lanes, dependencies, latencies and fifos") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const Graph g = random_graph(seed);
    const Finished run = run_all(g.system, g.ops);
    std::vector<Picoseconds> lane(g.system.lanes.size(), 0);
    for (std::size_t i = 0; i < g.ops.size(); ++i) {
      const Record& r = run.records[i];
      Picoseconds earliest = lane[r.lane];
      for (const OpId a : g.ops[i].after)
        earliest = std::max(earliest, run.records[static_cast<std::size_t>(a)].finish);
      REQUIRE(r.start == earliest);
      REQUIRE(static_cast<double>(r.work_start - r.start) >= g.ops[i].latency - 1);
      REQUIRE(static_cast<double>(r.finish - r.work_start) >= alone(g.system, g.ops[i]) - 1);
      lane[r.lane] = r.finish;
      for (std::size_t j = 0; j < i; ++j) {
        const Record& s = run.records[j];
        for (const std::uint16_t fifo_id : {std::uint16_t{2}, std::uint16_t{3}}) {
          const auto holds = [&](const LoneOp& op) {
            return std::any_of(op.demands.begin(), op.demands.end(),
                               [&](const Demand& d) { return d.resource == fifo_id && d.amount > 0; });
          };
          if (holds(g.ops[i]) && holds(g.ops[j])) REQUIRE((r.work_start >= s.finish || s.work_start >= r.finish));
        }
      }
    }
  }
}

TEST_CASE("independent systems do not affect each other") {
  // A second system in the same run, with its own lanes and resources, changes nothing in the first.
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const Graph a = random_graph(seed), b = random_graph(seed + 1000);
    const Finished alone_run = run_all(a.system, a.ops);
    Graph both = a;
    both.system.resources.insert(both.system.resources.end(), b.system.resources.begin(), b.system.resources.end());
    both.system.lanes.insert(both.system.lanes.end(), b.system.lanes.begin(), b.system.lanes.end());
    for (LoneOp op : b.ops) {
      op.lane = static_cast<std::uint16_t>(op.lane + a.system.lanes.size());
      for (Demand& d : op.demands) d.resource = static_cast<std::uint16_t>(d.resource + a.system.resources.size());
      for (OpId& id : op.after) id += static_cast<OpId>(a.ops.size());
      both.ops.push_back(op);
    }
    const Finished run = run_all(both.system, both.ops);
    for (std::size_t i = 0; i < a.ops.size(); ++i) {
      REQUIRE(std::abs(run.records[i].start - alone_run.records[i].start) <= 1);
      REQUIRE(std::abs(run.records[i].finish - alone_run.records[i].finish) <= 1);
    }
  }
}

}  // namespace kvcast::tests
