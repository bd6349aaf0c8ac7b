// The timeline is JSON that says what the run did.
#include "engine/timeline.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runs.hpp"

using namespace kvcast;
using namespace kvcast::engine;
using nlohmann::json;

namespace {

System system_with_pool() {
  System system = make_system(3, {fair(), fifo()});
  system.lanes = {"compute", "copy \"A\"", "idle"};
  system.pools = {{"hbm", 1e9}};
  system.owners = {"kv"};
  return system;
}

std::vector<LoneOp> three_ops() {
  std::vector<LoneOp> ops{make_op(0, 1.5 * kUs, {{0, 2.000001 * kUs}}), make_op(1, 0, {{1, 4 * kUs}}),
                          make_op(0, 1 * kUs, {}, {1})};
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].tag = 100 + i;
  ops[0].memory.push_back({0, 0, 64});
  ops[2].memory.push_back({0, 0, -64});
  return ops;
}

json draw(TimelineRange range = {}) {
  const System system = system_with_pool();
  std::ostringstream out;
  {
    TimelineWriter writer(
        out, system,
        [](std::uint64_t tag) {
          return TimelineLabel{"op\n" + std::string(1, static_cast<char>('a' + tag - 100)),
                               "kind",
                               {{"layer", static_cast<double>(tag)}}};
        },
        range);
    Blocks source(three_ops(), {});
    run(system, source, &writer);
  }
  return json::parse(out.str());
}

std::vector<json> of_phase(const json& timeline, const std::string& phase) {
  std::vector<json> result;
  for (const json& event : timeline["traceEvents"]) {
    if (event["ph"] == phase) result.push_back(event);
  }
  return result;
}

}  // namespace

TEST_CASE("a timeline has one bar an op in the row of its lane") {
  const std::vector<json> bars = of_phase(draw(), "X");
  REQUIRE(bars.size() == 3);
  // In order of finish: 0 at 1.5 + 2.000001, 1 at 4, 2 from 4 to 5.
  CHECK(bars[0]["name"] == "op\na");
  CHECK(bars[0]["cat"] == "kind");
  CHECK(bars[0]["tid"] == 1);
  CHECK(bars[0]["ts"] == 0.0);
  CHECK(bars[0]["dur"] == 3.500001);
  CHECK(bars[0]["args"]["work_us"] == 2.000001);
  CHECK(bars[0]["args"]["layer"] == 100.0);
  CHECK(bars[0]["args"]["op"] == 0);
  CHECK(bars[1]["tid"] == 2);
  CHECK(bars[1]["dur"] == 4.0);
  CHECK(bars[2]["ts"] == 4.0);
  CHECK(bars[2]["dur"] == 1.0);
}

TEST_CASE("rows are named after the lanes that have ops") {
  std::map<int, std::string> names;
  for (const json& event : of_phase(draw(), "M")) {
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  }
  CHECK(names == std::map<int, std::string>{{1, "compute"}, {2, "copy \"A\""}});
}

TEST_CASE("memory is a counter") {
  const std::vector<json> counters = of_phase(draw(), "C");
  REQUIRE(counters.size() == 2);
  CHECK(counters[0]["name"] == "hbm");
  CHECK(counters[0]["ts"] == 0.0);
  CHECK(counters[0]["args"]["bytes"] == 64.0);
  CHECK(counters[1]["ts"] == 5.0);
  CHECK(counters[1]["args"]["bytes"] == 0.0);
}

TEST_CASE("a range leaves out what lies outside") {
  // From 3.8 to 4.5: op 0 (to 3.500001) is out, 1 (to 4) and 2 (4 to 5) are in; no memory changes within.
  const json timeline = draw({3'800'000, 4'500'000});
  CHECK(of_phase(timeline, "X").size() == 2);
  CHECK(of_phase(timeline, "C").empty());
}

TEST_CASE("a timeline without ops is still JSON") {
  std::ostringstream out;
  const System system = system_with_pool();
  TimelineWriter writer(out, system, [](std::uint64_t) { return TimelineLabel{}; });
  writer.close();
  writer.close();
  CHECK(json::parse(out.str())["traceEvents"].size() == 1);
}
