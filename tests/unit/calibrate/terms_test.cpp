// Terms that a base profile does not state and that only measurements of the machine reveal.
#include <catch2/catch.hpp>

#include "calibrate/machine.hpp"
#include "support/temporary_directory.hpp"
#include "unit/calibrate/synthetic.hpp"

namespace kvcast::tests {

using nlohmann::json;

namespace {

// The benchmarks of gpu_document, scores of pages and 2D copies.
json wider_document() {
  json doc = gpu_document();
  add_rows(doc, "hbm_stream", "cold", {{"op", {"write"}}, {"bytes", {1 << 20, 1 << 22, 1 << 24, 1 << 28}}},
           [](const json& a) { return work(a["bytes"].get<double>()); });
  add_rows(doc, "page_score", "cold",
           {{"reduce", {"group_max"}}, {"pages", {64, 1024, 8192}}, {"kv_heads", {8, 64}}, {"group", {4}}},
           [](const json& a) {
             const double n = a["pages"].get<double>() * a["kv_heads"].get<double>();
             return work(n * (4 * 128 + 4), 4 * n * 4 * 128);
           });
  add_rows(doc, "host_copy", "cold",
           {{"direction", {"h2d", "d2h"}},
            {"memory", {"pinned"}},
            {"how", {"2d"}},
            {"clock", {"issue"}},
            {"bytes", {256, 4096}},
            {"pieces", {64, 512, 8192}}},
           [](const json&) { return json::object(); });
  return doc;
}

calibrate::MachineResult fitted(const config::Hardware& truth, json doc) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  time_rows(doc, path, truth, calibrate::gpu_cases, 0);
  return calibrate::fit_gpu(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
}

config::Hardware plain_truth() {
  config::Hardware truth = machine_of("h100-sxm-sglang");
  truth.gpu.attention_correction.reset();
  return truth;
}

}  // namespace

TEST_CASE(
    "the ramp of a stream, the efficiency of scores and the call of a 2D copy are found even if the base has none",
    "[minutes]") {
  config::Hardware truth = plain_truth();
  truth.gpu.stream_efficiency.value = 0.9, truth.gpu.floor_small.value = 1e-6, truth.gpu.memory_ramp.value = 1.5e-6;
  truth.gpu.score_efficiency.value = 0.5, truth.gpu.floor_score.value = 2e-6;
  truth.link.issue_2d.value = 1.3e-6, truth.link.issue_row.value = 2e-9;
  REQUIRE(machine_of("h100-sxm").gpu.memory_ramp == 0);
  REQUIRE(machine_of("h100-sxm").link.issue_2d == 0);
  const auto result = fitted(truth, wider_document());
  for (const std::string& miss : result.misses) UNSCOPED_INFO(miss);
  CHECK(result.misses.empty());
  const config::Gpu& gpu = result.hardware.gpu;
  CHECK(gpu.stream_efficiency == Approx(0.9).epsilon(0.01));
  CHECK(gpu.memory_ramp == Approx(1.5e-6).epsilon(0.05));
  CHECK(gpu.memory_ramp.origin == Origin::kFitted);
  CHECK(gpu.score_efficiency == Approx(0.5).epsilon(0.02));
  CHECK(gpu.floor_score == Approx(2e-6).epsilon(0.05));
  CHECK(result.hardware.link.issue_2d == Approx(1.3e-6).epsilon(0.05));
  CHECK(result.hardware.link.issue_row == Approx(2e-9).epsilon(0.05));
}

TEST_CASE("the engine's time for a piece is found even if the base states less than the wire's", "[minutes]") {
  config::Hardware truth = plain_truth();
  // 64 KiB take 1.2 us at 55 GB/s; the base's half microsecond at every size has no slope there.
  config::Curve& piece = truth.link.engine_piece;
  piece.x = {4096, 16384, 65536}, piece.y = {0.7e-6, 1e-6, 2e-6};
  json doc = gpu_document();
  add_rows(doc, "host_copy", "cold",
           {{"direction", {"h2d", "d2h"}},
            {"memory", {"pinned"}},
            {"how", {"calls"}},
            {"clock", {"device"}},
            {"bytes", {65536}},
            {"pieces", {8, 64}}},
           [](const json&) { return json::object(); });
  const auto result = fitted(truth, doc);
  const config::Curve& found = result.hardware.link.engine_piece;
  REQUIRE(found.x.size() == 3);
  CHECK(found.y[0] == Approx(0.7e-6).epsilon(0.02));
  CHECK(found.y[2] == Approx(2e-6).epsilon(0.02));
}

TEST_CASE("the uncertainty of a number from a single noisy row is not below the row's own noise", "[minutes]") {
  config::Hardware truth = plain_truth();
  json doc = gpu_document();
  for (json& row : doc["rows"]) {
    if (row["bench"] == "host_sync") row["noise"] = 0.1;
  }
  const auto result = fitted(truth, doc);
  // 90 % of the values of a normal variable lie within 1.64 standard deviations.
  CHECK(result.hardware.host.item_sync.uncertainty >= 0.164);
  CHECK(result.hardware.host.launch.uncertainty < 0.06);
}

}  // namespace kvcast::tests
