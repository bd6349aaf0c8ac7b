// The Chrome trace of a run, as Perfetto reads it.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "app/process.hpp"
#include "support/perfetto.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

TEST_CASE("a timeline nests steps, layers and operations, and its arrows lead to waiting operations", "[minutes]") {
  const Scratch scratch;
  const Output o = kvcast({"run", "configs/runs/quickstart.yaml", "--set", "policy={name: freekv, budget: 512}",
                           "--timeline", scratch / "t.json"});
  REQUIRE(o.code == 0);
  std::ifstream file(scratch / "t.json");
  const PerfettoTrace trace = read_as_perfetto(json::parse(file));
  CHECK(trace.refused == 0);
  const auto slice = [&](int i) { return trace.slices.at(static_cast<std::size_t>(i)); };
  std::size_t copies = 0, misplaced = 0;
  std::set<std::string> layers;
  for (const auto& s : trace.slices) {
    const std::string parent = s.parent < 0 ? "" : slice(s.parent).name;
    if (s.category == "group") {
      if (s.name.starts_with("step ") ? s.parent >= 0 : !parent.starts_with("step ")) ++misplaced;
    } else if (s.args.contains("layer")) {
      if (parent != fmt::format("layer {}", s.args.at("layer").get<int>())) ++misplaced;
      layers.insert(parent);
    } else if (!parent.starts_with("step ")) {
      ++misplaced;
    }
    if (s.args.contains("bytes") && s.args.at("bytes").get<double>() > 0) ++copies;
  }
  CHECK(misplaced == 0);
  CHECK(layers.size() == 32);
  CHECK(copies > 0);
  REQUIRE(!trace.arrows.empty());
  std::set<std::pair<std::string, std::string>> rows;
  for (const auto& [from, to] : trace.arrows) {
    // An arrow of a copy begins at its first call, which ends as the copy starts.
    CHECK(std::abs(slice(from).end - slice(to).begin) <= 1);
    CHECK(slice(from).category != "group");
    CHECK(slice(to).category != "group");
    rows.insert({slice(from).row, slice(to).row});
  }
  CHECK(rows.size() >= 3);  // such as compute waiting for copies, and copies waiting for compute
}

TEST_CASE("a run that does not fit writes no timeline and leaves an existing one unchanged", "[minutes]") {
  const Scratch scratch;
  const std::string earlier = scratch.write("earlier.json", "{}");
  const Output second = kvcast({"run", "configs/runs/quickstart.yaml", "--set", "policy=full", "--set",
                                "workload.batch=8", "--timeline", earlier});
  CHECK(second.code == 0);
  std::ifstream file(earlier);
  CHECK(json::parse(file) == json::object());
  const Output o = kvcast({"run", "configs/runs/quickstart.yaml", "--set", "policy=full", "--set", "workload.batch=8",
                           "--timeline", scratch / "t.json"});
  CHECK(o.code == 0);
  CHECK_THAT(o.err, Contains("t.json is not written: an experiment that does not fit has no decode step"));
  CHECK_THAT(o.out, !Contains("Perfetto"));
  CHECK(!std::filesystem::exists(scratch / "t.json"));
}

}  // namespace kvcast::tests
