// Sweeps: points, their order and their names; counts worked out by hand.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

#include "config/sweep.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

const std::string kBase = "policy: {name: base, tau: 0.5}\nworkload: {batch: 1, prompt_tokens: 64}\n";  // lines 1 and 2

std::vector<SweepPoint> points_of(const std::string& sweep) {
  return expand_sweep(parse_yaml(kBase + "sweep:\n" + sweep, "sweep.yaml"));
}

std::string error_of_sweep(const std::string& sweep) {
  return error_of([&] { points_of(sweep); });
}

// "policy.budget=1 workload.batch=2" for each point.
std::vector<std::string> labels(const std::vector<SweepPoint>& points) {
  std::vector<std::string> out;
  for (const SweepPoint& point : points) {
    std::vector<std::string> values;
    for (const auto& [key, value] : point.values) values.push_back(key + "=" + value);
    out.push_back(fmt::format("{}", fmt::join(values, " ")));
  }
  return out;
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("a config without a sweep is one point", "[sweep]") {
  const Node config = parse_yaml(kBase, "sweep.yaml");
  const std::vector<SweepPoint> points = expand_sweep(config);
  REQUIRE(points.size() == 1);
  CHECK(points[0].config.canonical() == config.canonical());
  CHECK(points[0].values.empty());
}

TEST_CASE("lists form a grid, the first axis slowest", "[sweep]") {
  const std::vector<SweepPoint> points = points_of("  policy.budget: [1, 2]\n  workload: {batch: [4, 8]}\n");
  CHECK(labels(points) == Labels{"policy.budget=1 workload.batch=4", "policy.budget=1 workload.batch=8",
                                 "policy.budget=2 workload.batch=4", "policy.budget=2 workload.batch=8"});
  CHECK(points[1].config.canonical() ==
        R"({"policy":{"budget":1,"name":"base","tau":0.5},"workload":{"batch":8,"prompt_tokens":64}})");
}

TEST_CASE("a policy by name replaces the base's, a parameter does not", "[sweep]") {
  const std::vector<SweepPoint> points = points_of("  policy: [{name: quest, budget: 512}, full, {budget: 3}]\n");
  CHECK(labels(points) == Labels{"policy.name=quest policy.budget=512", "policy.name=full", "policy.budget=3"});
  CHECK(points[0].config.find("policy")->canonical() == R"({"budget":512,"name":"quest"})");
  CHECK(points[1].config.find("policy")->canonical() == R"("full")");
  CHECK(points[2].config.find("policy")->canonical() == R"({"budget":3,"name":"base","tau":0.5})");
}

TEST_CASE("maps as values set several keys at once and keep the others", "[sweep]") {
  const std::vector<SweepPoint> points = points_of("  workload: [{batch: 4, decode_tokens: 9}, {batch: 8}]\n");
  CHECK(labels(points) == Labels{"workload.batch=4 workload.decode_tokens=9", "workload.batch=8"});
  CHECK(points[0].config.find("workload")->canonical() == R"({"batch":4,"decode_tokens":9,"prompt_tokens":64})");
}

TEST_CASE("a trace file replaces a recipe", "[sweep]") {
  const Node config = parse_yaml("trace: {recipe: needle, seed: 3}\nsweep: {trace: [{file: t}, {seed: 4}]}", "f");
  const std::vector<SweepPoint> points = expand_sweep(config);
  CHECK(points[0].config.find("trace")->canonical() == R"({"file":"t"})");
  CHECK(points[1].config.find("trace")->canonical() == R"({"recipe":"needle","seed":4})");
}

TEST_CASE("a whole policy is set before its parameters, whatever their order", "[sweep]") {
  const std::vector<SweepPoint> points = points_of("  policy.budget: [1, 2]\n  policy: [quest, hsa]\n");
  REQUIRE(points.size() == 4);
  CHECK(points[3].config.find("policy")->canonical() == R"({"budget":2,"name":"hsa"})");
}

TEST_CASE("a whole machine is set before its numbers, and a name replaces settings of another machine", "[sweep]") {
  const auto machines = [](const std::string& base, const std::string& sweep) {
    std::vector<std::string> out;
    for (const SweepPoint& point : expand_sweep(parse_yaml("hardware: " + base + "\nsweep:\n" + sweep, "f"))) {
      out.push_back(point.config.find("hardware")->canonical());
    }
    return out;
  };
  using Texts = std::vector<std::string>;
  CHECK(machines("a", "  hardware.gpu.clock: [x1, 2 GHz]\n  hardware: [b, c]\n") ==
        Texts{R"({"gpu":{"clock":"x1"},"like":"b"})", R"({"gpu":{"clock":"x1"},"like":"c"})",
              R"({"gpu":{"clock":2 GHz},"like":"b"})", R"({"gpu":{"clock":2 GHz},"like":"c"})"});
  CHECK(machines("{like: a, gpu: {clock: x2}}", "  hardware: [b, {like: c, link: {pcie: {generation: 6}}}]\n") ==
        Texts{R"("b")", R"({"like":"c","link":{"pcie":{"generation":6}}})"});
  // A map without `like` changes the existing host; another host replaces the previous one with its numbers.
  CHECK(machines("{like: a, gpu: {clock: x2}}", "  hardware: [{gpu: {sm_count: 9}}]\n") ==
        Texts{R"({"gpu":{"clock":"x2","sm_count":9},"like":"a"})"});
  CHECK(machines("{like: a, host: {cores: 4}}", "  hardware.host: [h, {like: i, cores: 5}]\n") ==
        Texts{R"({"host":"h","like":"a"})", R"({"host":{"cores":5,"like":"i"},"like":"a"})"});
  CHECK(machines("a", "  hardware.host.cores: [4]\n  hardware.host: [h]\n") ==
        Texts{R"({"host":{"cores":4,"like":"h"},"like":"a"})"});
  // Lists inside a machine of a case are axes.
  CHECK(
      machines("a", "  cases: [{hardware: {like: b, gpu: {clock: [x1, x2], sm_count: 8}}}]\n") ==
      Texts{R"({"gpu":{"clock":"x1","sm_count":8},"like":"b"})", R"({"gpu":{"clock":"x2","sm_count":8},"like":"b"})"});
}

TEST_CASE("all spellings of a machine's key have one name", "[sweep]") {
  CHECK(
      labels(points_of("  hardware: [a, {like: b, gpu: {clock: x2}}]\n  hardware.host: [h, {like: i, cores: 4}]\n")) ==
      Labels{"hardware=a hardware.host=h", "hardware=a hardware.host=i hardware.host.cores=4",
             "hardware=b hardware.gpu.clock=x2 hardware.host=h",
             "hardware=b hardware.gpu.clock=x2 hardware.host=i hardware.host.cores=4"});
  CHECK(
      labels(points_of("  hardware: [{like: {name: a, uncertainty: 5 %}}]\n  hardware.gpu.clock: [{value: x2, origin: "
                       "measured}]\n")) ==
      Labels{"hardware=a hardware.like.uncertainty=5 % hardware.gpu.clock=x2 hardware.gpu.clock.origin=measured"});
  for (const char* sweep :
       {"  hardware: [a, b]\n  hardware.like: [c, d]", "  hardware: [{like: a}, b]\n  hardware: [c]",
        "  hardware.gpu.clock: [x1, x2]\n  hardware: [a, {like: b, gpu: {clock: {value: x3}}}]",
        "  hardware.host: [h]\n  hardware.host.like: [i]"}) {
    INFO(sweep);
    CHECK_THAT(error_of_sweep(sweep), Catch::Contains("two axes set \"hardware") || Catch::Contains("duplicate key"));
  }
}

TEST_CASE("zipped lists advance together", "[sweep]") {
  const Labels expected = {"policy.budget=1 workload.batch=4", "policy.budget=2 workload.batch=8"};
  CHECK(labels(points_of("  zip: {policy.budget: [1, 2], workload: {batch: [4, 8]}}\n")) == expected);
  CHECK(labels(points_of(
            "  zip: [{policy.budget: 1, workload.batch: 4}, {policy.budget: 2, workload: {batch: 8}}]\n")) == expected);
  // One axis of a grid like any other: 2 · 3 points.
  CHECK(points_of("  zip: {policy.budget: [1, 2], workload.batch: [4, 8]}\n  hardware: [a, b, c]\n").size() == 6);
}

TEST_CASE("cases follow one another", "[sweep]") {
  const std::vector<SweepPoint> points = points_of(
      "  cases:\n"
      "    - {policy: {name: quest}, policy.budget: [256, 512]}\n"
      "    - policy: full\n"
      "    - {policy: {name: hsa, budget: [7, 8, 9], page: 4}}\n"
      "    - {policy.name: [snapkv, h2o], policy.budget: [1, 2]}\n"
      "    - policy: [{name: freekv, tau: 1}, tova]\n");
  CHECK(labels(points) ==
        Labels{"policy.name=quest policy.budget=256", "policy.name=quest policy.budget=512", "policy.name=full",
               "policy.name=hsa policy.page=4 policy.budget=7", "policy.name=hsa policy.page=4 policy.budget=8",
               "policy.name=hsa policy.page=4 policy.budget=9", "policy.name=snapkv policy.budget=1",
               "policy.name=snapkv policy.budget=2", "policy.name=h2o policy.budget=1",
               "policy.name=h2o policy.budget=2", "policy.name=freekv policy.tau=1", "policy.name=tova"});
  CHECK(points[3].config.find("policy")->canonical() == R"({"budget":7,"name":"hsa","page":4})");
  // The base's other parameters stay if only `policy.name` is set.
  CHECK(points[6].config.find("policy")->canonical() == R"({"budget":1,"name":"snapkv","tau":0.5})");
}

TEST_CASE("cases multiply with the other axes and may contain zips and cases", "[sweep]") {
  // hardware 2 · (2 of quest + 1 full) · batch 3 = 18.
  CHECK(points_of("  hardware: [a, b]\n"
                  "  cases: [{policy: quest, policy.budget: [1, 2]}, {policy: full}]\n"
                  "  workload.batch: [1, 2, 4]\n")
            .size() == 18);
  // A zip of 2 times seeds 2, and nested cases of 1 + 1: 2 · 2 + 2 = 6.
  CHECK(points_of("  cases:\n"
                  "    - {zip: {policy.budget: [1, 2], workload.batch: [3, 4]}, trace.seed: [1, 2]}\n"
                  "    - cases: [{policy: full}, {policy: tova}]\n")
            .size() == 6);
}

TEST_CASE("values may be lists", "[sweep]") {
  CHECK(labels(points_of("  x: [[1, 2], [3]]\n")) == Labels{"x=[1,2]", "x=[3]"});
}

TEST_CASE("expansion is pure: it always gives the same points and does not change the configuration", "[sweep]") {
  const Node config = parse_yaml(kBase + "sweep: {policy.budget: [1, 2], hardware: [a, b]}", "f");
  const std::string before = config.canonical();
  CHECK(labels(expand_sweep(config)) == labels(expand_sweep(config)));
  CHECK(config.canonical() == before);
}

TEST_CASE("every point is a different configuration without `sweep`", "[sweep]") {
  const std::vector<SweepPoint> points = points_of("  a: [1, 2, 3]\n  b: [1, 2, 3]\n  c.d: [x, y]\n");
  CHECK(points.size() == 18);  // 3 · 3 · 2
  std::set<std::string> texts;
  for (const SweepPoint& point : points) {
    texts.insert(point.config.canonical());
    CHECK(point.config.find("sweep") == nullptr);
  }
  CHECK(texts.size() == 18);
}

TEST_CASE("the quickstart sweep expands to the expected points", "[sweep]") {
  // Contexts 4, GPUs 2, batches 3: 24 grid points. Cases: full 1; seven policies at 3 budgets 21; rocketkv at 3 budgets
  // and 4 split factors 12; freekv at 3 budgets 3, and 4 more without one of its parts: 41.
  const Node config = load_yaml(std::string(KVCAST_SOURCE_DIR) + "/configs/sweeps/quickstart.yaml");
  const std::vector<SweepPoint> points = expand_sweep(config);
  CHECK(points.size() == 24 * 41);
  std::set<std::string> policies;
  for (const SweepPoint& point : points) policies.insert(read_policy(*point.config.find("policy")).name);
  CHECK(policies.size() == 10);
}

TEST_CASE("empty and malformed sweeps are rejected with their location", "[sweep]") {
  CHECK(error_of_sweep("  {}") == "sweep.yaml:4:3: sweep: expected a map of keys to lists, found an empty map");
  CHECK(error_of_sweep("  - a") == "sweep.yaml:4:3: sweep: expected a map of keys to lists, found a list");
  CHECK(error_of_sweep("  a: []") == "sweep.yaml:4:6: sweep: \"a\" is an empty list");
  CHECK(error_of_sweep("  a: 1") ==
        "sweep.yaml:4:6: sweep: \"a\" must be a list of values, found \"1\"; keys that do not vary belong outside of "
        "`sweep:`");
  CHECK_THAT(error_of_sweep("  a: {b: 1}"),
             Catch::StartsWith("sweep.yaml:4:10: sweep: \"a.b\" must be a list of values"));
  // In the sweep itself, unlike in a case, a single name is not an axis.
  CHECK_THAT(error_of_sweep("  policy: {name: quest, budget: [1, 2]}"),
             Catch::StartsWith("sweep.yaml:4:18: sweep: \"policy.name\" must be a list of values, found \"quest\""));
  CHECK_THAT(error_of_sweep("  a: {}"),
             Catch::StartsWith("sweep.yaml:4:6: sweep: \"a\" must be a list of values, found an empty map"));
  CHECK(error_of_sweep("  a: [{}]") == "sweep.yaml:4:7: sweep: an empty map sets nothing");
  CHECK(error_of_sweep("  a b: [1]") == "sweep.yaml:4:9: \"a b\" is not a path of keys such as workload.batch");
  CHECK(error_of_sweep("  workload.batch.x: [7]") ==
        "sweep.yaml:4:22: cannot set \"workload.batch.x\": \"workload.batch\" is \"1\", not a map");
}

TEST_CASE("a key that two axes set is rejected", "[sweep]") {
  CHECK(error_of_sweep("  workload.batch: [1, 2]\n  workload: {batch: [3, 4]}") ==
        "sweep.yaml:3:1: sweep: two axes set \"workload.batch\"");
  CHECK(error_of_sweep("  policy: [full, {name: quest, budget: 3}]\n  policy.budget: [1, 2]") ==
        "sweep.yaml:3:1: sweep: two axes set \"policy.budget\"");
  CHECK(error_of_sweep("  policy: [full, quest]\n  policy.name: [tova, h2o]") ==
        "sweep.yaml:3:1: sweep: two axes set \"policy.name\"");
  CHECK(error_of_sweep("  cases: [{policy: {name: quest, budget: 1}, policy.budget: [2, 3]}]") ==
        "sweep.yaml:4:11: sweep: two axes set \"policy.budget\"");
}

TEST_CASE("equal points are rejected, naming both", "[sweep]") {
  CHECK(error_of_sweep("  a: [1, 2, 1]") == "sweep.yaml:3:1: sweep: point 3 (a=1) is the same as point 1 (a=1)");
  CHECK(error_of_sweep("  cases: [{policy: full}, {policy: quest}, {policy: full}]\n  workload.batch: [1, 2]") ==
        "sweep.yaml:3:1: sweep: point 5 (policy.name=full, workload.batch=1) is the same as point 1 (policy.name=full, "
        "workload.batch=1)");
}

TEST_CASE("malformed zips are rejected", "[sweep]") {
  CHECK(error_of_sweep("  zip: {a: [1, 2], b: [1, 2, 3]}") ==
        "sweep.yaml:4:23: sweep: zip: \"b\" has 3 values, but \"a\" has 2");
  CHECK(error_of_sweep("  zip: {a: 1}") == "sweep.yaml:4:12: sweep: zip: \"a\" must be a list, found \"1\"");
  CHECK(error_of_sweep("  zip: {}") == "sweep.yaml:4:8: sweep: zip: no lists");
  CHECK(error_of_sweep("  zip: []") ==
        "sweep.yaml:4:8: sweep: zip: expected a list of maps, or a map of lists, found an empty list");
  CHECK(error_of_sweep("  zip: 3") ==
        "sweep.yaml:4:8: sweep: zip: expected a list of maps, or a map of lists, found \"3\"");
  CHECK(error_of_sweep("  zip: [3]") == "sweep.yaml:4:9: sweep: zip: expected a map, found \"3\"");
  CHECK(error_of_sweep("  zip: [{a: [1, 2]}]") ==
        "sweep.yaml:4:13: sweep: zip: in a list of maps, each map must have single values");
}

TEST_CASE("cases that are not maps are rejected", "[sweep]") {
  CHECK(error_of_sweep("  cases: 3") == "sweep.yaml:4:10: sweep: cases: expected a list of maps, found \"3\"");
  CHECK(error_of_sweep("  cases: []") == "sweep.yaml:4:10: sweep: cases: expected a list of maps, found an empty list");
  CHECK(error_of_sweep("  cases: [full]") == "sweep.yaml:4:11: sweep: cases: expected a map, found \"full\"");
  CHECK(error_of_sweep("  cases: [{}]") == "sweep.yaml:4:11: sweep: cases: expected a map, found an empty map");
}

TEST_CASE("more than a million points are rejected before expansion", "[sweep]") {
  // 11 axes of 4: 4^11 = 4 194 304; 64 axes of 4 would overflow every integer.
  for (const int axes : {11, 64}) {
    std::string sweep;
    for (int i = 0; i < axes; ++i) sweep += fmt::format("  a{}: [1, 2, 3, 4]\n", i);
    CHECK(error_of_sweep(sweep) == "sweep.yaml:3:1: sweep: more than 1000000 points");
  }
  // Four cases of 4^9 = 262 144 points each are 1 048 576 together.
  std::string one = "{";
  for (int i = 0; i < 9; ++i) one += fmt::format("a{}: [1, 2, 3, 4], ", i);
  const auto cases = [&](int n) {
    std::string sweep = "  cases:\n";
    for (int i = 0; i < n; ++i) sweep += fmt::format("    - {}b: {}}}\n", one, i);
    return sweep;
  };
  CHECK(error_of_sweep(cases(4)) == "sweep.yaml:5:5: sweep: more than 1000000 points");
}

TEST_CASE("the points of a request are counted before any is made") {
  // Half of 2 · 5^8 points are in a case of their own, so that only the product of its axes shows how many there are.
  std::string axes;
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h"}) axes += fmt::format("{}: [1, 2, 3, 4, 5], ", key);
  const std::string sweep = "sweep: {cases: [{" + axes + "x: 1}, {" + axes + "x: 2}]}\n";
  CHECK_THAT(error_of([&] { SweepGrid(parse_request(sweep)); }),
             Catch::Contains("request:1:") && Catch::Contains("more than the 256 points of a request"));
  const std::string most = "sweep: {a: [" + [] {
    std::string list = "0";
    for (int i = 1; i < 256; ++i) list += fmt::format(", {}", i);
    return list;
  }() + "]}\n";
  CHECK(SweepGrid(parse_request(most)).size() == 256);
  CHECK_THAT(error_of([&] { SweepGrid(parse_request("sweep: {b: [1, 2], " + most.substr(8))); }),
             Catch::Contains("more than the 256 points"));
  CHECK(SweepGrid(parse_yaml("sweep: {b: [1, 2], " + most.substr(8), "s.yaml")).size() == 512);
  std::stop_source stop;
  stop.request_stop();
  CHECK_THROWS_AS(SweepGrid(parse_request(most), stop.get_token()), Cancelled);
}

}  // namespace kvcast::tests
