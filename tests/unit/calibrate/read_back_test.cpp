// The text of a profile is read before it is written to a file, so that no calibration leaves a file that kvcast
// rejects.
#include "calibrate/read_back.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "calibrate/write.hpp"
#include "support/error_of.hpp"
#include "unit/calibrate/synthetic.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;

namespace {

std::string profile_of(config::Hardware machine) { return "title: T\n" + calibrate::machine_yaml(machine, "a host"); }

// The number of one key, as a part of a profile.
std::string part_of(config::Hardware& machine, std::string_view key) {
  return "gpu:\n" + calibrate::yaml_of(machine, std::span(&key, 1));
}

}  // namespace

TEST_CASE("every machine of the project can be written and read back") {
  for (const char* name : {"h100-sxm", "h200", "l40s", "a100-80gb-sxm-trtllm", "b200"}) {
    INFO(name);
    config::Hardware machine = machine_of(name);
    CHECK(error_of([&] { calibrate::check_part(part_of(machine, "gpu.floor_gemm"), machine); }) == "no error");
  }
  CHECK(error_of([] { calibrate::check_profile(profile_of(machine_of("h100-sxm"))); }) == "no error");
}

TEST_CASE("a number out of a profile's range is reported by its name, without a file") {
  config::Hardware machine = machine_of("h100-sxm");
  machine.gpu.floor_gemm.value = 5;
  const std::string profile = error_of([&] { calibrate::check_profile(profile_of(machine)); });
  CHECK_THAT(profile, Contains("nothing is written") && Contains("cannot be read: floor_gemm: 5 s is out of range"));
  const std::string part = part_of(machine, "gpu.floor_gemm");
  CHECK(error_of([&] { calibrate::check_part(part, machine_of("h100-sxm")); }) == profile);

  machine = machine_of("h100-sxm");
  machine.host.dram_bandwidth.value = 20.8e6;
  CHECK_THAT(error_of([&] { calibrate::check_profile(profile_of(machine)); }),
             Contains("dram_bandwidth: 20.8 MB/s is out of range, must be between 100 MB/s"));
  CHECK_THAT(error_of([] { calibrate::check_host("title: T\n"); }), Contains("nothing is written"));
  CHECK_THAT(error_of([&] { calibrate::check_part(part + "gpu:\n", machine_of("h100-sxm")); }), Contains("\"gpu\""));
}

}  // namespace kvcast::tests
