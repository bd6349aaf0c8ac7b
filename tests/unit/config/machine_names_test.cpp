// Names of GPUs as drivers and users write them: each finds its profile, or an answer that can be run.
#include <catch2/catch.hpp>

#include <filesystem>
#include <map>

#include "config/find.hpp"
#include "config/hardware.hpp"
#include "config/machine_names.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

TEST_CASE("names of nvidia-smi find the profile", "[machine_names]") {
  const std::map<std::string, std::string> names = {
      {"NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"},
      {"GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5ae0f5a8-0b8d)", "a100-80gb-sxm"},
      {"NVIDIA A100-PCIE-40GB", "a100-40gb-pcie4"},
      {"NVIDIA A30", "a30"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA H200", "h200"},
      {"NVIDIA H20", "h20"},
      {"NVIDIA GH200 480GB", "gh200"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA L4", "l4"},
      {"NVIDIA L20", "l20"},
      {"NVIDIA L40S", "l40s"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
      {"NVIDIA RTX A6000", "rtx-a6000"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
      {"NVIDIA GeForce RTX 3090", "rtx-3090"},
      {"NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"NVIDIA GeForce RTX 5090", "rtx-5090"},
      {"NVIDIA A10G", "a10g"},
      {"NVIDIA A40", "a40"},
      {"Tesla T4", "t4"},
      {"NVIDIA GeForce RTX 3060", "rtx-3060"},
      {"NVIDIA GeForce RTX 5080", "rtx-5080"},
      {"NVIDIA B300", "b300"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA GB10", "dgx-spark"},
      {"Tesla V100-SXM2-32GB", "v100-32gb"}};
  for (const auto& [name, profile] : names) {
    CAPTURE(name);
    CHECK(stem_of(find_config("hardware", name, {})) == profile);
  }
}

TEST_CASE("a GPU without a profile has an answer", "[machine_names]") {
  const auto answer = [](const char* name) { return error_of([&] { find_config("hardware", name, {}); }); };
  CHECK_THAT(answer("l40"), Catch::Contains("`hardware: {like: l40s, gpu: {tensor_flops: 181 TFLOP/s}}`"));
  CHECK_THAT(answer("NVIDIA H800"), Catch::Contains("like: h100-sxm"));
  CHECK_THAT(answer("A100"), Catch::Contains("which of a100-80gb-sxm, a100-40gb-pcie4 is meant?"));
  CHECK_THAT(answer("MI300X"), Catch::Contains("AMD's GPUs") && Catch::Contains("#add-a-gpu"));
  CHECK_THAT(answer("Apple M3 Max"), Catch::Contains("Apple's GPUs"));
  CHECK_THAT(answer("Jetson Orin"), Catch::Contains("shares memory with the CPU"));
  CHECK_THAT(answer("h2000"), Catch::Contains("did you mean \"h200\"?"));
  CHECK_THAT(error_of([] { read_hardware(parse_yaml("l40", "run.yaml")); }), Catch::Contains("run.yaml:1:1"));
}

TEST_CASE("each proposed machine can be read", "[machine_names]") {
  const Node list = load_yaml(find_config("cards", "machines", {}));
  int proposed = 0;
  for (const Node& item : list.items()) {
    for (const Node& name : item.find("names")->items()) {
      CAPTURE(name.text());
      if (const Node* choose = item.find("choose")) {
        for (const Node& one : choose->items()) CHECK_NOTHROW(find_config("hardware", one.text(), {}));
        continue;
      }
      const auto machine = proposed_machine(name.text());
      CHECK(machine.has_value() == (item.find("like") != nullptr));
      if (!machine) continue;
      CHECK(read_hardware(parse_yaml(flow_text(*machine), "advice")).gpu.hbm_bandwidth > 0);
      ++proposed;
    }
  }
  CHECK(proposed > 20);
}

TEST_CASE("names lose what all GPUs share", "[machine_names]") {
  CHECK(short_machine_name("NVIDIA GeForce RTX 4090") == "RTX 4090");
  CHECK(short_machine_name("nvidia-a100") == "a100");
  CHECK(short_machine_name("NVIDIA") == "NVIDIA");
  CHECK(short_machine_name("h200") == "h200");
}

}  // namespace kvcast::tests
