// The committed profiles: they load, say where each number comes from, and give known physics.
#include <catch2/catch.hpp>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/hardware.hpp"
#include "hardware/cost_model.hpp"

using namespace kvcast;

namespace {

std::vector<std::string> profiles() {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(KVCAST_SOURCE_DIR "/configs/hardware")) {
    if (entry.path().extension() == ".yaml") paths.insert(entry.path().string());
  }
  return {paths.begin(), paths.end()};
}

}  // namespace

TEST_CASE("every committed profile loads and states what its numbers rest on") {
  REQUIRE(profiles().size() >= 2);
  for (const std::string& path : profiles()) {
    INFO(path);
    config::Hardware machine = config::read_hardware(path);
    CHECK(!machine.title.empty());
    for (const config::Knob& knob : config::knobs(machine)) {
      INFO(knob.key);
      const Origin origin = knob.value != nullptr ? knob.value->origin : knob.curve->origin;
      const double uncertainty = knob.value != nullptr ? knob.value->uncertainty : knob.curve->uncertainty;
      const std::string& source = knob.value != nullptr ? knob.value->source : knob.curve->source;
      CHECK(source.size() >= 10);
      // Nothing has been measured by kvcast's own kernels yet, and only what is counted or defined is certain.
      CHECK(origin != Origin::kMeasured);
      CHECK(origin != Origin::kFitted);
      if (origin == Origin::kLiterature && knob.key != "gpu.sm_count") CHECK(uncertainty >= 0.01);
      if (origin == Origin::kAssumed) CHECK(uncertainty >= 0.03);
    }
  }
}
