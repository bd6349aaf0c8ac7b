// The timeline of a run as a Chrome trace, read as Perfetto reads it.
#include "engine/timeline.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

#include "runs.hpp"
#include "support/perfetto.hpp"

namespace kvcast::tests {

using namespace engine;
using nlohmann::json;

namespace {

System system_with_pool() {
  System system = make_system(3, {fair(), fifo()});
  system.lanes = {"compute", "copy \"A\"", "idle"};
  system.pools = {{"hbm", 1e9}};
  system.owners = {"kv"};
  return system;
}

// On the compute lane 0 from 0 to 3.500001 us and, after the copy that ends at 4 us, 2 from 4 to 5 and 3 from 5 to 6;
// op 4 takes no time.
std::vector<LoneOp> five_ops() {
  std::vector<LoneOp> ops{make_op(0, 1.5 * kUs, {{0, 2.000001 * kUs}}), make_op(1, 0, {{1, 4 * kUs}}),
                          make_op(0, 1 * kUs, {}, {1}), make_op(0, 1 * kUs), make_op(0, 0)};
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].tag = 100 + i;
  ops[0].memory.push_back({0, 0, 64});
  ops[2].memory.push_back({0, 0, -64});
  return ops;
}

json draw() {
  const System system = system_with_pool();
  TimelineLog log;
  Blocks source(five_ops(), {});
  run(system, source, &log);
  std::ostringstream out;
  // Ops 0 and 1 are of layer 0, 2 of layer 1, and 3 of no layer.
  write_timeline(out, system, log, [](const Record& r) {
    TimelineLabel label{"op\n" + std::string(1, static_cast<char>('a' + r.tag - 100)), "kind", {{"bytes", 7}}, {}, {}};
    label.groups = {"step 1"};
    if (r.id < 3) label.groups.push_back(r.id < 2 ? "layer 0" : "layer 1");
    if (r.id == 2) label.waited_for = 1;
    return label;
  });
  return json::parse(out.str());
}

// The names of the slices that enclose a slice and its own name, outermost first.
std::string path_of(const PerfettoTrace& trace, const PerfettoSlice& slice) {
  const std::string above =
      slice.parent < 0 ? "" : path_of(trace, trace.slices[static_cast<std::size_t>(slice.parent)]) + " > ";
  return above + slice.name;
}

}  // namespace

TEST_CASE("an op is a slice nested in the slices of its groups, in the row of its lane") {
  const PerfettoTrace trace = read_as_perfetto(draw());
  CHECK(trace.refused == 0);
  std::vector<std::string> read;
  for (const PerfettoSlice& s : trace.slices)
    read.push_back(fmt::format("{}: {}, {} to {}", s.row, path_of(trace, s), s.begin, s.end));
  CHECK(read == std::vector<std::string>{
                    "compute: step 1, 0 to 6000", "compute: step 1 > layer 0, 0 to 3500",
                    "compute: step 1 > layer 0 > op\na, 0 to 3500", "copy \"A\": step 1, 0 to 4000",
                    "copy \"A\": step 1 > layer 0, 0 to 4000", "copy \"A\": step 1 > layer 0 > op\nb, 0 to 4000",
                    "compute: step 1 > layer 1, 4000 to 5000", "compute: step 1 > layer 1 > op\nc, 4000 to 5000",
                    "compute: step 1 > op\nd, 5000 to 6000"});
  CHECK(trace.slices[2].category == "kind");
  CHECK(trace.slices[2].args == json{{"op", 0}, {"work_us", 2.000001}, {"bytes", 7}});
}

TEST_CASE("a wait is an arrow between two ops") {
  const PerfettoTrace trace = read_as_perfetto(draw());
  REQUIRE(trace.arrows.size() == 1);
  CHECK(trace.slices[static_cast<std::size_t>(trace.arrows[0].first)].name == "op\nb");
  CHECK(trace.slices[static_cast<std::size_t>(trace.arrows[0].second)].name == "op\nc");
}

TEST_CASE("rows have the order of the lanes, and lanes without ops are omitted") {
  const json file = draw();
  std::vector<std::pair<int, int>> order;
  for (const json& e : file.at("traceEvents")) {
    if (e.at("name") == "thread_sort_index") order.emplace_back(e.at("tid"), e.at("args").at("sort_index"));
  }
  CHECK(order == std::vector<std::pair<int, int>>{{1, 0}, {2, 1}});
}

TEST_CASE("memory is shown as a counter") {
  const PerfettoTrace trace = read_as_perfetto(draw());
  using Steps = std::vector<std::pair<std::int64_t, double>>;
  CHECK(trace.counters == std::map<std::string, Steps>{{"hbm", {{0, 64.0}, {5000, 0.0}}}});
}

TEST_CASE("a timeline without ops is valid JSON") {
  std::ostringstream out;
  write_timeline(out, system_with_pool(), TimelineLog(), [](const Record&) { return TimelineLabel{}; });
  CHECK(json::parse(out.str()).at("traceEvents").size() == 1);
}

}  // namespace kvcast::tests
