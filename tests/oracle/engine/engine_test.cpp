// The engine compared with the plain solver on random graphs of many shapes.
#include "engine/engine.hpp"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.hpp"
#include "engine/fluid.hpp"
#include "engine/simulate.hpp"
#include "random_graph.hpp"

namespace kvcast::tests {

namespace {

engine::System to_system(const oracle::Graph& graph) {
  engine::System system;
  for (const oracle::Resource& r : graph.resources) {
    system.resources.push_back(
        {"resource", static_cast<double>(r.rate), r.fifo ? engine::Sharing::kFifo : engine::Sharing::kFair});
  }
  system.lanes.assign(static_cast<std::size_t>(graph.lanes), "lane");
  return system;
}

engine::OpBlock to_block(const oracle::Graph& graph) {
  engine::OpBlock block;
  for (const oracle::Op& from : graph.ops) {
    block.add_op(static_cast<std::uint16_t>(from.lane), static_cast<engine::WorkId>(block.works.size()));
    block.add_work(static_cast<double>(from.latency * 1e12L), static_cast<double>(from.weight));
    for (const oracle::Demand& d : from.demands) {
      block.add_demand(static_cast<std::uint16_t>(d.resource), static_cast<double>(d.amount));
    }
    for (const int earlier : from.after) block.add_after(earlier);
  }
  return block;
}

struct Times final : engine::Observer {
  explicit Times(std::size_t n) : records(n) {}
  void finished(const engine::Record& record) override { records[static_cast<std::size_t>(record.id)] = record; }
  std::vector<engine::Record> records;
};

// The largest difference between the two in picoseconds, over all starts and finishes.
double difference(const oracle::Graph& graph, double& makespan) {
  const std::vector<oracle::Times> expected = oracle::solve(graph);
  Times actual(graph.ops.size());
  engine::OneBlock source(to_block(graph));
  makespan = static_cast<double>(engine::run(to_system(graph), source, &actual).makespan);
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const engine::Record& r = actual.records[i];
    largest =
        std::max(largest, std::abs(static_cast<double>(expected[i].start * 1e12L) - static_cast<double>(r.start)));
    largest =
        std::max(largest, std::abs(static_cast<double>(expected[i].finish * 1e12L) - static_cast<double>(r.finish)));
  }
  return largest;
}

}  // namespace

TEST_CASE("starts and finishes of random graphs equal the plain solver's") {
  constexpr std::uint64_t kGraphs = 400;  // per shape
  for (const oracle::Shape& shape : oracle::shapes()) {
    DYNAMIC_SECTION(shape.name) {
      for (std::uint64_t seed = 0; seed < kGraphs; ++seed) {
        INFO("shape " << shape.name << ", seed " << seed);
        double makespan = 0;
        const double worst = difference(oracle::random_graph(shape, seed), makespan);
        // Records are whole picoseconds: half of one from rounding, and the same for other errors.
        REQUIRE(worst <= 1 + 1e-12 * makespan);
      }
    }
  }
}

TEST_CASE("starts and finishes also agree through JSON, with gaps between ids and ops ordered by lane") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const oracle::Graph graph = oracle::random_graph(oracle::shapes()[0], 1000 + seed);
    const auto n = static_cast<std::int64_t>(graph.ops.size());
    // Ids keep their order, so that ties are resolved in the same way, but have gaps.
    const auto id = [](std::int64_t i) { return 3 * i + 5; };
    nlohmann::json json{{"resources", nlohmann::json::array()}, {"lanes", nlohmann::json::array()}};
    for (std::size_t r = 0; r < graph.resources.size(); ++r) {
      json["resources"].push_back({{"name", fmt::format("r{}", r)},
                                   {"rate", static_cast<double>(graph.resources[r].rate)},
                                   {"sharing", graph.resources[r].fifo ? "fifo" : "fair"}});
    }
    for (int l = 0; l < graph.lanes; ++l) json["lanes"].push_back(fmt::format("l{}", l));
    // Lane by lane: ops of a lane stay in order, and many now wait for ops that come later in the file.
    json["ops"] = nlohmann::json::array();
    for (int l = graph.lanes - 1; l >= 0; --l) {
      for (std::int64_t i = 0; i < n; ++i) {
        const oracle::Op& op = graph.ops[static_cast<std::size_t>(i)];
        if (op.lane != l) continue;
        nlohmann::json demand = nlohmann::json::object(), after = nlohmann::json::array();
        for (const auto& d : op.demands) demand[fmt::format("r{}", d.resource)] = static_cast<double>(d.amount);
        for (const int a : op.after) after.push_back(id(a));
        json["ops"].push_back({{"id", id(i)},
                               {"lane", fmt::format("l{}", l)},
                               {"latency_s", static_cast<double>(op.latency)},
                               {"demand", demand},
                               {"after", after}});
      }
    }
    const nlohmann::json result = nlohmann::json::parse(engine::simulate_json(json.dump(), "graph.json"));
    const std::vector<oracle::Times> expected = oracle::solve(graph);
    REQUIRE(result["ops"].size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(result["ops"][i]["id"] == id(static_cast<std::int64_t>(i)));
      CHECK(std::abs(result["ops"][i]["start_s"].get<double>() - static_cast<double>(expected[i].start)) < 1e-12);
      CHECK(std::abs(result["ops"][i]["finish_s"].get<double>() - static_cast<double>(expected[i].finish)) < 1e-12);
    }
  }
}

TEST_CASE("speeds of random sets of ops equal the plain solver's") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    INFO("seed " << seed);
    const Stream stream(seed);
    oracle::Shape shape{.name = "speeds",
                        .ops = 2 + static_cast<int>(stream.below(0, 12)),
                        .resources = 1 + static_cast<int>(stream.below(1, 6)),
                        .fifo = 0,
                        .demands = 0.1 + 0.9 * stream.uniform(2),
                        .spread = 3 * stream.uniform(3)};
    shape.lanes = shape.ops;
    shape.grid = stream.uniform(4) < 0.3;
    const oracle::Graph graph = oracle::random_graph(shape, seed);
    std::vector<int> works;
    engine::Fluid fluid(graph.ops.size(), graph.resources.size());
    std::vector<std::vector<engine::Share>> shares_of(graph.ops.size());  // outlives the ops
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      double alone = 0;
      std::vector<engine::Share>& shares = shares_of[i];
      for (const auto& d : graph.ops[i].demands) {
        if (d.amount == 0) continue;
        const double time = static_cast<double>(d.amount / graph.resources[static_cast<std::size_t>(d.resource)].rate);
        shares.push_back({static_cast<std::uint16_t>(d.resource), time});
        alone = std::max(alone, time);
      }
      if (alone == 0) continue;
      for (engine::Share& share : shares) share.use /= alone;
      fluid.add(static_cast<std::uint16_t>(i), alone, shares, 0);
      works.push_back(static_cast<int>(i));
    }
    fluid.solve(0);
    const std::vector<oracle::Real> expected = oracle::speeds(graph, works);
    for (std::size_t w = 0; w < works.size(); ++w) {
      CHECK(fluid.speed(static_cast<std::uint16_t>(works[w])) ==
            Approx(static_cast<double>(expected[w])).epsilon(1e-12));
    }
  }
}

}  // namespace kvcast::tests
