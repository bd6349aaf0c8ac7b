// A GPU's results are seldom complete: cases are skipped, time runs out, clocks are throttled. The remaining rows must
// suffice for a calibration.
#include <catch2/catch.hpp>
#include <fstream>

#include "calibrate/fit_stages.hpp"
#include "calibrate/machine.hpp"
#include "config/hardware.hpp"
#include "support/temporary_directory.hpp"
#include "unit/calibrate/synthetic.hpp"

namespace kvcast::tests {

using nlohmann::json;

namespace {

// The rows of every benchmark that an interrupted session measured: the first, and each of the others with this
// probability.
json thinned(const json& whole, double kept, std::uint64_t seed) {
  json doc = whole;
  doc["rows"] = json::array();
  std::map<std::string, int> seen;
  for (std::size_t i = 0; i < whole["rows"].size(); ++i) {
    const json& row = whole["rows"][i];
    const bool first = seen[row["bench"]]++ == 0;
    if (first || Stream(seed).uniform(i) < kept) doc["rows"].push_back(row);
  }
  return doc;
}

// Rows without a number, as the measuring program writes them.
void skip_some(json& doc, double share, std::uint64_t seed) {
  for (std::size_t i = 0; i < doc["rows"].size(); ++i) {
    if (Stream(seed).uniform(i) >= share) continue;
    json& row = doc["rows"][i];
    row["skip_reason"] = "the data does not fit in device memory";
    row["time_s"] = nullptr;
  }
}

config::Hardware gpu_truth() {
  config::Hardware truth = machine_of("h100-sxm-sglang");
  truth.gpu.attention_correction.reset();
  truth.gpu.stream_efficiency.value = 0.93;
  truth.link.h2d_bandwidth.value = 45e9;
  return truth;
}

}  // namespace

TEST_CASE("a GPU whose rows are partly missing calibrates, and its profile can be read") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json", profile = folder.path() + "/gpu.yaml";
  static const json whole = [&path] {
    json doc = gpu_document();
    time_rows(doc, path, gpu_truth(), calibrate::gpu_cases, 0.03);
    return doc;
  }();
  using Draw = std::tuple<double, std::uint64_t>;
  const auto [kept, seed] = GENERATE(Draw{0.6, 1}, Draw{0.6, 2}, Draw{0.3, 3}, Draw{0.1, 1}, Draw{0.1, 2}, Draw{0, 3});
  INFO(kept << " kept, seed " << seed);
  json doc = thinned(whole, kept, seed);
  skip_some(doc, 0.1, seed + 10);
  write(doc, path);
  const calibrate::Results results = calibrate::read_results(path);
  CHECK(results.rows.size() + results.skipped.size() == doc["rows"].size());
  // Two cases that are fitted with two numbers cannot validate a third: budgets are not tested here.
  calibrate::MachineRequest request = made_up_request(machine_of("a100-80gb-sxm"));
  request.budget_median = request.budget_p90 = 10;
  const auto result = calibrate::fit_gpu(results, request);
  std::ofstream(profile) << result.yaml;
  const config::Hardware read = config::read_hardware(profile);
  CHECK(read.gpu.stream_efficiency == result.hardware.gpu.stream_efficiency);
  CHECK(read.gpu.stream_efficiency <= 1);
  for (const std::string& why : result.too_few) CHECK_THAT(why, Catch::Matchers::Contains("to fit"));
  // Every stage is fitted or named as left out.
  CHECK(result.calibrations.size() + result.left_out.size() == calibrate::gpu_stages().size());
  const bool streams = std::find(result.left_out.begin(), result.left_out.end(), "streams") == result.left_out.end();
  CHECK((read.gpu.stream_efficiency.origin == Origin::kFitted) == streams);
  // More than half of the rows give the same numbers as all of them, within the 3 % of noise.
  if (kept > 0.5) {
    CHECK(read.gpu.stream_efficiency == Approx(0.93).epsilon(0.05));
    CHECK(read.link.h2d_bandwidth == Approx(45e9).epsilon(0.05));
  }
}

TEST_CASE("gathers of a few bytes are latency and leave the bandwidth curve unchanged", "[minutes]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  const auto curve_of = [&](const json& doc) {
    write(doc, path);
    return calibrate::fit_gpu(calibrate::read_results(path), made_up_request(machine_of("a100-80gb-sxm")))
        .hardware.gpu.gather_efficiency;
  };
  json doc = thinned(gpu_document(), 1, 1);
  time_rows(doc, path, gpu_truth(), calibrate::gpu_cases, 0);
  const config::Curve before = curve_of(doc);
  // 2048 rows of 32 bytes, there and back: 131 KB, of whose time the memory takes less than 10 us.
  add_rows(doc, "hbm_gather", "cold", {{"row_bytes", {32, 256}}, {"run", {1}}, {"gathered", {2048}}},
           [](const json& a) { return work(2 * a["row_bytes"].get<double>() * 2048); });
  for (std::size_t i = doc["rows"].size() - 2; i < doc["rows"].size(); ++i) doc["rows"][i]["time_s"]["median"] = 10e-6;
  const config::Curve after = curve_of(doc);
  CHECK(before.x.front() == 64);
  CHECK(after.x == before.x);
  CHECK(after.y == before.y);
}

}  // namespace kvcast::tests
