// Tables made by a known machine: starting from another machine, the fit must recover it.
#include "calibrate/table.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "calibrate/points.hpp"
#include "calibrate/predict.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "unit/calibrate/synthetic.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;

namespace {

// Made-up kernels on a GPU of 132 SMs and 50 MB of L2.
config::Hardware truth() {
  config::Hardware machine = machine_of("h100-sxm");
  config::Gpu& gpu = machine.gpu;
  gpu.attention_correction.reset();
  gpu.attention.floor.value = 6e-6, gpu.attention.merge.value = 1.5e-6, gpu.attention.tile_time.value = 0.6e-6;
  gpu.attention.tile.value = 64, gpu.attention.part.value = 256, gpu.attention.parts.value = 2;
  gpu.attention.efficiency.value = 0.9, gpu.attention.overlap.value = 1.7, gpu.attention.padding.value = 0.5;
  gpu.attention.l2_bandwidth.value = 6e12;
  gpu.attention.row.x = {4, 8}, gpu.attention.row.y = {2.5e-6, 3e-6};
  gpu.floor_gemm.value = 3e-6, gpu.gemm_overlap.value = 4, gpu.gemm_row_loss.value = 0.06;
  gpu.gemm_memory_efficiency.x = {30e6, 1.1e9}, gpu.gemm_memory_efficiency.y = {0.85, 0.85};
  gpu.gemm_compute_efficiency.x = {0.01, 0.25, 1, 4, 32, 256};
  gpu.gemm_compute_efficiency.y = {0.02, 0.5, 0.7, 0.8, 0.8, 0.75};
  return machine;
}

double noisy(double seconds, std::uint64_t i, double noise) {
  return seconds * (1 + noise * (2 * Stream(3).uniform(i) - 1));
}

// The same, with a second kernel for query heads that have a KV head each.
config::Hardware truth_of_two() {
  config::Hardware machine = truth();
  config::AttentionKernel& mha = machine.gpu.attention_mha.emplace(machine.gpu.attention);
  mha.floor.value = 12e-6, mha.efficiency.value = 0.7, mha.tile.value = 128, mha.part.value = 512;
  mha.row.x = {1}, mha.row.y = {1e-6};
  return machine;
}

// The same grid as public tables: powers of two up to 2^22 KV pairs.
std::string write_attention(const TemporaryDirectory& folder, double noise, bool held_out = true,
                            const config::Hardware& machine = truth(), const std::vector<int>& query_heads = {32, 64}) {
  const std::string path = folder.path() + "/attention.csv";
  std::ofstream out(path);
  out << "device,framework,batch,ctx,n_q,n_kv,head_dim,latency_us,held_out\n";
  std::uint64_t i = 0;
  for (int b = 0; b <= 10; b += 2) {
    for (int c = 1; c <= 16; c += 1) {
      if (b + c > 19) continue;
      for (const int n_q : query_heads) {
        const double batch = 1 << b, context = 1 << c;
        calibrate::MeasuredPoint point;
        point.op.work = graph::DecodeAttention{.rows = batch * 8,
                                               .group = n_q / 8.0,
                                               .head_dim = 128,
                                               .tokens = batch * 8 * context,
                                               .longest = context,
                                               .warm = true};
        const double us = 1e6 * noisy(calibrate::predict(machine.gpu, point), ++i, noise);
        out << fmt::format("made_up,test,{},{},{},8,128,{},{}\n", batch, context, n_q, us,
                           held_out && (b + 3 * c) % 4 == 0 ? 1 : 0);
      }
    }
  }
  return path;
}

std::string write_gemm(const TemporaryDirectory& folder, double noise) {
  const std::string path = folder.path() + "/gemm.csv";
  std::ofstream out(path);
  out << "device,framework,m,n,k,latency_us,held_out\n";
  const config::Hardware machine = truth();
  std::uint64_t i = 0;
  for (const auto& [n, k] : std::vector<std::pair<int, int>>{{4096, 4096}, {6144, 4096}, {8192, 8192}, {65536, 8192}}) {
    for (const int m : {1, 4, 16, 64, 128, 256, 512, 1024, 8192}) {
      calibrate::MeasuredPoint point;
      point.op.kind = graph::Kind::kGemm;
      point.op.work = graph::Gemm{double(m), double(n), double(k)};
      const double us = 1e6 * noisy(calibrate::predict(machine.gpu, point), ++i, noise);
      out << fmt::format("made_up,test,{},{},{},{},{}\n", m, n, k, us, i % 4 == 0 ? 1 : 0);
    }
  }
  return path;
}

// A profile with the numbers that a fit has written.
config::Hardware read_with(const TemporaryDirectory& folder, const std::string& fitted) {
  const std::string part = folder.path() + "/part.yaml", path = folder.path() + "/machine.yaml";
  std::ofstream(part) << fitted;
  std::ofstream(path) << "title: T\nhost: generic\ninclude: [" << part
                      << ", chip-h100-sxm, fit-h100-sxm-vllm, kernels-hopper, kernels, copies, pcie5]\n";
  return config::read_hardware(path);
}

calibrate::TableRequest request(std::vector<std::string> files) {
  calibrate::TableRequest r;
  r.files = std::move(files), r.base = machine_of("h100-sxm-trtllm"), r.source = "made up", r.date = "2026-01-01";
  return r;
}

}  // namespace

TEST_CASE("a fit to tables of a known machine recovers its parameters", "[minutes]") {
  const TemporaryDirectory folder;
  const auto result = calibrate::fit_tables(request({write_attention(folder, 0.01), write_gemm(folder, 0.01)}));
  CHECK(result.misses.empty());
  REQUIRE(result.calibrations.size() == 2);
  for (const config::Calibration& c : result.calibrations) {
    INFO(c.kernel);
    CHECK(c.held_out.n > 5);
    CHECK(c.held_out.p90 < 0.025);  // noise of ±1 %, and its effect on the fit
  }
  const config::Gpu &found = result.hardware.gpu, expected = truth().gpu;
  CHECK(found.attention.efficiency == Approx(expected.attention.efficiency).epsilon(0.02));
  CHECK(found.attention.l2_bandwidth == Approx(expected.attention.l2_bandwidth).epsilon(0.15));
  CHECK(found.attention.floor == Approx(expected.attention.floor).epsilon(0.1));
  REQUIRE(found.attention.row.x == std::vector<double>{4, 8});
  CHECK(found.attention.row.y[0] == Approx(2.5e-6).epsilon(0.1));
  CHECK(found.attention.row.y[1] == Approx(3e-6).epsilon(0.1));
  CHECK(found.range.attention_tokens.low == 2);
  CHECK(found.range.attention_rows.high == 8 * 1024);
  CHECK(found.gemm_memory_efficiency.y.back() == Approx(0.85).epsilon(0.03));
  CHECK(found.floor_gemm == Approx(3e-6).epsilon(0.2));
}

TEST_CASE("a profile written by a fit reads back with the fitted values") {
  const TemporaryDirectory folder;
  const auto result = calibrate::fit_tables(request({write_gemm(folder, 0.01)}));
  const config::Hardware read = read_with(folder, result.yaml);
  CHECK(read.gpu.floor_gemm == result.hardware.gpu.floor_gemm);
  CHECK(read.gpu.floor_gemm.origin == Origin::kFitted);
  CHECK(read.gpu.gemm_compute_efficiency.y == result.hardware.gpu.gemm_compute_efficiency.y);
  REQUIRE(read.calibrations.size() == 1);
  CHECK(read.calibrations[0].held_out.n == result.calibrations[0].held_out.n);
  CHECK(read.calibrations[0].budget_p90 == Approx(0.13));
}

TEST_CASE("a framework's second kernel for separate KV heads is found if there is one, and only then", "[minutes]") {
  const TemporaryDirectory folder;
  const auto fit = [&](const config::Hardware& machine) {
    return calibrate::fit_tables(request({write_attention(folder, 0.01, true, machine, {8, 32, 64})}));
  };
  CHECK_FALSE(fit(truth()).hardware.gpu.attention_mha);

  const auto result = fit(truth_of_two());
  const config::Gpu& found = result.hardware.gpu;
  REQUIRE(found.attention_mha);
  CHECK(found.attention_mha->floor == Approx(12e-6).epsilon(0.1));
  CHECK(found.attention_mha->efficiency == Approx(0.7).epsilon(0.02));
  CHECK(found.attention.efficiency == Approx(0.9).epsilon(0.02));
  CHECK(found.attention.row.x == std::vector<double>{4, 8});
  CHECK(result.calibrations[0].held_out.p90 < 0.03);

  const config::Hardware read = read_with(folder, result.yaml);
  REQUIRE(read.gpu.attention_mha);
  CHECK(read.gpu.attention_mha->floor == found.attention_mha->floor);
  CHECK(read.gpu.attention_mha->row.y == found.attention_mha->row.y);
  CHECK(read.gpu.attention_mha->row.origin == Origin::kFitted);
  CHECK(read.gpu.attention_mha->row.x.front() == 1);
}

TEST_CASE("a deviation that the terms cannot express is found in their residuals, and only there", "[minutes]") {
  const TemporaryDirectory folder;
  const auto fit = [&](const config::Hardware& machine) {
    return calibrate::fit_tables(request({write_attention(folder, 0.01, true, machine)}));
  };
  CHECK_FALSE(fit(truth()).hardware.gpu.attention_correction);

  // Kernels of middling length take up to 40 % longer, over three octaves of context and for any number of rows.
  config::Hardware machine = truth();
  config::AttentionCorrection bump{{8, 8192}, {128, 1024, 2048, 16384}, {4, 8}, {}, true, "made up"};
  for (int i = 0; i < 4; ++i) bump.excess.insert(bump.excess.end(), {0, 0.4, 0.4, 0});
  machine.gpu.attention_correction = bump;
  const auto result = fit(machine);
  REQUIRE(result.hardware.gpu.attention_correction);
  CHECK(result.hardware.gpu.attention_correction->repeated);
  CHECK(result.calibrations[0].held_out.p90 < 0.07);
  // Residuals without a correction: the same terms have larger errors.
  config::Gpu bare = result.hardware.gpu;
  bare.attention_correction.reset();
  const auto points = calibrate::read_points(folder.path() + "/attention.csv");
  CHECK(calibrate::errors_of(bare, points, true).p90 > 2 * result.calibrations[0].held_out.p90);

  const config::Hardware read = read_with(folder, result.yaml);
  REQUIRE(read.gpu.attention_correction);
  CHECK(config::canonical(*read.gpu.attention_correction) ==
        config::canonical(*result.hardware.gpu.attention_correction));
}

TEST_CASE("a fit that misses its budget is reported") {
  const TemporaryDirectory folder;
  calibrate::TableRequest r = request({write_gemm(folder, 0.3)});
  r.budget_median = 0.01;
  const auto result = calibrate::fit_tables(r);
  REQUIRE(!result.misses.empty());
  CHECK_THAT(result.misses[0], Contains("median error") && Contains("1.0 % allowed"));
}

TEST_CASE("tables that cannot be fitted are rejected", "[minutes]") {
  const TemporaryDirectory folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.path() + "/bad.csv";
    std::ofstream(path) << text;
    return error_of([&] { calibrate::fit_tables(request({path})); });
  };
  const std::string head = "device,framework,kernel,m,n,k,latency_us,held_out\n";
  CHECK_THAT(error(head + "a,b,c,1,2,3,4,0\n"), Contains("bad.csv: GEMM: 1 points to fit to"));
  CHECK_THAT(error("device;framework;m;n;k;latency_us\n"), Contains("found \"device;framework;m;n;k;latency_us\""));
  CHECK_THAT(error(head + "a,b,c,1,2,3,4,0\na,b,d,1,2,3,4,0\n"), Contains("bad.csv:3:1: one device, framework"));
  CHECK_THAT(error(head + "a,b,c,1,2,3,4,yes\n"), Contains("held_out: expected 0 or 1"));
  CHECK_THAT(error(head + "a,b,c,1,2,3,-4,0\n"), Contains("latency_us: expected a positive number"));
  CHECK_THAT(error(head + "a,b,c,1,2,3,1e308,0\n"), Contains(":2:13: latency_us: \"1e308\" is above the limit, 1e+12"));
  CHECK_THAT(error(head + "a,b,c,1,2,3,1e999,0\n"), Contains("latency_us: \"1e999\" is above the limit"));
  CHECK_THAT(error(head + "a,b,c,1,2,3,1e-999,0\n"), Contains("latency_us: expected a positive number"));
  CHECK_THAT(error(head + "a,b,c,32.5,2,3,4,0\n"), Contains(":2:7: m: expected a whole number, found \"32.5\""));
  CHECK_THAT(error_of([&] { calibrate::fit_tables(request({write_attention(folder, 0, false)})); }),
             Contains("no point is held out"));
}

TEST_CASE("tables that do not belong together are rejected") {
  const TemporaryDirectory folder;
  const std::string points = KVCAST_SOURCE_DIR "/configs/hardware/points/";
  const auto error = [&](const std::vector<std::string>& files) {
    calibrate::TableRequest r = request(files);
    r.base = machine_of("h200");
    return error_of([&] { calibrate::fit_tables(r); });
  };
  const std::string vllm = points + "attention-h200_sxm-vllm.csv", trtllm = points + "attention-h200_sxm-trtllm.csv";
  CHECK_THAT(error({vllm, vllm}), Contains("two attention tables: " + vllm + " and " + vllm));
  CHECK_THAT(error({vllm, trtllm}), Contains("two attention tables: " + vllm + " and " + trtllm));
  CHECK_THAT(error({points + "gemm-h200_sxm-vllm.csv", trtllm}),
             Contains(trtllm + ":2:1: framework is \"trtllm\", but \"vllm\" in"));
  CHECK_THAT(error({write_gemm(folder, 0.01), vllm}), Contains("device is \"h200_sxm\", but \"made_up\" in"));
}

TEST_CASE("a table of a GPU other than the profile's is rejected if both are known") {
  const std::string path = KVCAST_SOURCE_DIR "/configs/hardware/points/gemm-l40s-sglang.csv";
  calibrate::TableRequest r = request({path});
  CHECK_THAT(error_of([&] { calibrate::fit_tables(r); }),
             Contains(path + ":2:1: device \"l40s\" is NVIDIA L40S") && Contains("the profile h100-sxm-trtllm is of"));
  r.base.aliases.clear();  // the profile of a GPU without a name in the measurements
  CHECK(error_of([&] { calibrate::fit_tables(r); }) == "no error");
  r.base = machine_of("l40s-flash-attention");  // the same GPU with other kernels
  CHECK(error_of([&] { calibrate::fit_tables(r); }) == "no error");
}

TEST_CASE("an error just above its budget is written with enough digits to show the difference") {
  const TemporaryDirectory folder;
  calibrate::TableRequest r = request({write_gemm(folder, 0.3)});
  const double median = calibrate::fit_tables(r).calibrations[0].judged().median;
  r.budget_median = median * (1 - 1e-5), r.budget_p90 = 10;
  const auto result = calibrate::fit_tables(r);
  REQUIRE(result.misses.size() == 1);
  const std::string& miss = result.misses[0];
  const std::size_t error = miss.find("median error ") + 13, limit = miss.find("%, ") + 3;
  CHECK(std::stod(miss.substr(error)) > std::stod(miss.substr(limit)));
}

TEST_CASE("quotation marks and backslashes of a source are read back") {
  const TemporaryDirectory folder;
  calibrate::TableRequest r = request({write_gemm(folder, 0.01)});
  r.source = "the \"second\" run, C:\\points\tnew";
  const config::Hardware read = read_with(folder, calibrate::fit_tables(r).yaml);
  CHECK_THAT(read.gpu.floor_gemm.source, Catch::Matchers::StartsWith(r.source));
  CHECK_THAT(read.calibrations[0].source, Catch::Matchers::StartsWith(r.source));
}

}  // namespace kvcast::tests
