// Results that a known machine would give: `calibrate cpu` and `calibrate cuda` must recover that machine.
#include "calibrate/machine.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "config/hardware.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "unit/calibrate/synthetic.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// The benchmarks of kvcast-kernels-cpu on four cores.
json host_document() {
  json doc = empty_document({{"host_cpu", "made up"}, {"date", "2026-01-01"}, {"cores", 4}, {"dram_bytes", 64e9}});
  const json threads = {1, 2, 4}, modes = {"spin", "block"};
  add_rows(doc, "cpu_dram", "batch", {{"op", {"read", "copy"}}, {"threads", threads}},
           [](const json&) { return work(2e8); });
  add_rows(doc, "cpu_gather_dot", "cold",
           {{"dim", {64, 128}}, {"rows", {65536, 1048576}}, {"run", {1, 4, 16}}, {"threads", threads}},
           [](const json& a) {
             const double rows = 4096.0 * a["threads"].get<double>(), elements = rows * a["dim"].get<double>();
             return work(2 * elements, 2 * elements, rows);
           });
  add_rows(doc, "cpu_sparse_attention", "cold",
           {{"dim", {128}},
            {"context", {16384}},
            {"group", {1, 8}},
            {"items", {1, 8}},
            {"threads", threads},
            {"tokens", {512, 2048}}},
           [](const json& a) {
             const double rows = a["items"].get<double>() * a["tokens"].get<double>(), elements = rows * 128;
             return work(4 * elements, 4 * elements * a["group"].get<double>(), 2 * rows);
           });
  add_rows(doc, "cpu_topk", "batch", {{"n", {1024, 65536}}, {"k", {64, 512}}, {"rows", {1, 8}}, {"threads", threads}},
           [](const json&) { return json::object(); });
  add_rows(doc, "cpu_lsh_lookup", "cold",
           {{"queries", {8, 32}}, {"context", {16384, 98304}}, {"tables", {75, 150}}, {"threads", threads}},
           [](const json& a) {  // 256 buckets of a table, all as full
             const double buckets = a["queries"].get<double>() * a["tables"].get<double>();
             return json{{"ids", buckets * a["context"].get<double>() / 256}, {"buckets", buckets}};
           });
  add_rows(doc, "cpu_product", "batch", {{"m", {1024}}, {"n", {256, 2048}}, {"k", {128, 512}}, {"threads", threads}},
           [](const json& a) {
             const double outputs = 1024 * a["n"].get<double>() * a["threads"].get<double>();
             return work(0, 2 * outputs * a["k"].get<double>());
           });
  add_rows(doc, "cpu_fork_join", "batch", {{"wait", modes}, {"threads", threads}},
           [](const json&) { return json::object(); });
  return doc;
}

config::Hardware host_truth() {
  config::Hardware machine = machine_of("h100-sxm");
  config::Host& host = machine.host;
  host.cores.value = 4;
  host.dram_bandwidth.value = 30e9, host.core_flops.value = 20e9, host.all_core_derate.value = 0.8;
  host.dispatch.value = 8e-6, host.core_rank.value = 4e-9, host.core_rank_again.value = 2.5e-9,
  host.core_lookup.value = 1.5e-9;
  host.core_translation.value = 80e-9, host.core_bucket.value = 250e-9, host.core_products.value = 75e9;
  // Four cores reach 0.8 · 4 · 12 GB/s: more than the memory's bandwidth.
  host.core_bandwidth.x = {128, 256, 512, 1024, 2048, 4096, 1 << 20};
  host.core_bandwidth.y = {2e9, 3e9, 4e9, 5e9, 6e9, 7e9, 12e9};
  return machine;
}

}  // namespace

TEST_CASE("calibrate cpu recovers the host that produced the results") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  json doc = host_document();
  time_rows(doc, path, host_truth(), calibrate::host_cases, 0.01);
  const auto result = calibrate::fit_host(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
  CHECK(result.misses.empty());
  CHECK(result.left_out.empty());
  CHECK(result.calibrations.size() == 6);
  const config::Host &found = result.hardware.host, expected = host_truth().host;
  CHECK(found.cores == 4);
  CHECK(found.dram_bandwidth == Approx(expected.dram_bandwidth).epsilon(0.03));
  CHECK(found.core_flops == Approx(expected.core_flops).epsilon(0.05));
  CHECK(found.all_core_derate == Approx(expected.all_core_derate).epsilon(0.03));
  CHECK(found.dispatch == Approx(expected.dispatch).epsilon(0.02));
  CHECK(found.core_translation == Approx(expected.core_translation).epsilon(0.05));
  CHECK(found.core_rank == Approx(expected.core_rank).epsilon(0.02));
  CHECK(found.core_rank_again == Approx(expected.core_rank_again).epsilon(0.05));
  CHECK(found.core_lookup == Approx(expected.core_lookup).epsilon(0.02));
  CHECK(found.core_bucket == Approx(expected.core_bucket).epsilon(0.02));
  CHECK(found.core_products == Approx(expected.core_products).epsilon(0.02));
  REQUIRE(found.core_bandwidth.x.size() == expected.core_bandwidth.x.size());
  for (std::size_t i = 0; i < expected.core_bandwidth.y.size(); ++i) {
    CHECK(found.core_bandwidth.y[i] == Approx(expected.core_bandwidth.y[i]).epsilon(0.05));
  }

  // The profile is a host that a machine can name.
  const std::string host = folder.path() + "/host.yaml";
  std::ofstream(host) << result.yaml;
  std::ofstream(folder.path() + "/machine.yaml")
      << "title: T\nhost: " << host << "\ninclude: [fit-h100-sxm-vllm, chip-h100-sxm, kernels-hopper, kernels, copies, "
      << "pcie5]\n";
  const config::Hardware read = config::read_hardware(folder.path() + "/machine.yaml");
  CHECK(read.host.core_rank == found.core_rank);
  CHECK(read.host.core_rank.origin == Origin::kFitted);
  CHECK(read.host.calibrations.size() == 6);
  CHECK(read.host.launch.origin != Origin::kFitted);  // a CPU program does not report it
}

TEST_CASE("products on one core determine the product rate of a core, and results without them leave it unchanged",
          "[minutes]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  json doc = host_document();
  time_rows(doc, path, host_truth(), calibrate::host_cases, 0);
  // 2 · 1024 · 2048 · 512 operations in 8 us of fork and join and 50 ms of one core alone: 42.95 GFLOP/s. On four cores
  // each loses a fifth: 50 ms / 0.8.
  for (json& row : doc["rows"]) {
    if (row["bench"] != "cpu_product") continue;
    const json& axes = row["axes"];
    const double share = axes["n"].get<double>() * axes["k"].get<double>() / (2048 * 512);
    const double threads = axes["threads"].get<double>(), left = 1 - 0.2 * (threads - 1) / 3;
    row["time_s"]["median"] = 8e-6 + 50e-3 * share / left;
  }
  write(doc, path);
  const auto result = calibrate::fit_host(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
  CHECK(result.hardware.host.core_products == Approx(42.95e9).epsilon(0.01));
  CHECK(result.hardware.host.core_products.origin == Origin::kFitted);

  json& rows = doc["rows"];
  rows.erase(std::remove_if(rows.begin(), rows.end(), [](const json& row) { return row["bench"] == "cpu_product"; }),
             rows.end());
  write(doc, path);
  const auto without = calibrate::fit_host(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
  CHECK(without.left_out == std::vector<std::string>{"matrix products"});
  CHECK(without.hardware.host.core_products == machine_of("h100-sxm").host.core_products);
  CHECK(without.hardware.host.core_products.origin != Origin::kFitted);
}

TEST_CASE("cases with several passes are fitted once, at their middle, and the spread of the passes is reported",
          "[minutes]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  json doc = host_document();
  time_rows(doc, path, host_truth(), calibrate::host_cases, 0.01);
  const auto once = calibrate::fit_host(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
  for (const config::Calibration& c : once.calibrations) CHECK_FALSE(c.repeated);

  add_pass(doc, 1.21);
  write(doc, path);
  const calibrate::Results results = calibrate::read_results(path);
  CHECK(results.rows.size() == doc["rows"].size() / 2);
  // √1.21: every time is 1.1 times as long.
  CHECK(results.rows[0].seconds == Approx(1.1 * results.rows[0].passes[0]));
  const auto twice = calibrate::fit_host(results, made_up_request(machine_of("h100-sxm")));
  CHECK(twice.hardware.host.core_rank == Approx(1.1 * once.hardware.host.core_rank).epsilon(0.01));
  for (const config::Calibration& c : twice.calibrations) {
    INFO(c.kernel);
    REQUIRE(c.repeated);
    CHECK(c.repeated->n == c.fit.n + c.held_out.n);
    CHECK(c.repeated->median == Approx(0.21));
  }

  // Both passes again, three times as slow: of 1, 1.21, 3 and 3.63 the middle is √(1.21 · 3) = 1.9053. The first and
  // third give √3, the others √(1.21 · 3.63), which is 1.21 times as long.
  add_pass(doc, 3);
  write(doc, path);
  const calibrate::MeasuredRow four = calibrate::read_results(path).rows[0];
  CHECK(four.seconds == Approx(1.9053 * four.passes[0]).epsilon(1e-4));
  CHECK(four.spread == Approx(0.21));

  const std::string host = folder.path() + "/host.yaml";
  std::ofstream(host) << twice.yaml;
  const config::Host read = config::read_host(host);
  REQUIRE(read.calibrations.back().repeated);
  CHECK(read.calibrations.back().repeated->p90 == Approx(0.21));
}

TEST_CASE("a host that the model cannot explain misses its budget") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  json doc = host_document();
  time_rows(doc, path, host_truth(), calibrate::host_cases, 0.6);
  const auto result = calibrate::fit_host(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
  REQUIRE_FALSE(result.misses.empty());
  CHECK_THAT(result.misses.front(), Contains("held-out cases"));
}

TEST_CASE("calibrate cuda recovers the GPU that produced the results", "[minutes]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  config::Hardware truth = machine_of("h100-sxm-sglang");
  truth.gpu.attention_correction.reset();  // so that the terms themselves must be recovered
  truth.gpu.gap_stream.value = 3e-6, truth.gpu.gap_graph.value = 1.5e-6, truth.gpu.stream_efficiency.value = 0.93;
  truth.gpu.convert_efficiency.value = 0.7, truth.gpu.prefill_efficiency.value = 0.5;
  truth.host.launch.value = 3e-6, truth.host.stream_sync.value = 4e-6;
  truth.link.h2d_bandwidth.value = 45e9;
  std::ranges::fill(truth.link.issue_batched.y, 0.4e-6);
  json doc = gpu_document();
  time_rows(doc, path, truth, calibrate::gpu_cases, 0.005);
  // The file belongs to another machine.
  const auto result = calibrate::fit_gpu(calibrate::read_results(path), made_up_request(machine_of("a100-80gb-sxm")));
  for (const std::string& miss : result.misses) UNSCOPED_INFO(miss);
  CHECK(result.misses.empty());
  const config::Hardware& found = result.hardware;
  CHECK(found.gpu.hbm_bandwidth == 3.35e12);
  CHECK(found.gpu.sm_count == 132);
  CHECK(found.link.theory_bandwidth == Approx(63e9).epsilon(0.01));
  CHECK(found.gpu.gap_stream == Approx(3e-6).epsilon(0.02));
  CHECK(found.gpu.gap_graph == Approx(1.5e-6).epsilon(0.02));
  CHECK(found.gpu.stream_efficiency == Approx(0.93).epsilon(0.02));
  CHECK(found.gpu.convert_efficiency == Approx(0.7).epsilon(0.05));
  CHECK(found.gpu.prefill_efficiency == Approx(0.5).epsilon(0.03));
  CHECK(found.gpu.attention.efficiency == Approx(truth.gpu.attention.efficiency).epsilon(0.05));
  CHECK(found.host.launch == Approx(3e-6).epsilon(0.02));
  CHECK(found.host.stream_sync == Approx(4e-6).epsilon(0.02));
  CHECK(found.link.h2d_bandwidth == Approx(45e9).epsilon(0.02));
  for (const double seconds : found.link.issue_batched.y) CHECK(seconds == Approx(0.4e-6).epsilon(0.05));
  CHECK(result.left_out ==
        std::vector<std::string>{"page scores", "copies both ways", "pageable copies", "2D copies", "2D calls"});

  std::ofstream(folder.path() + "/gpu.yaml") << result.yaml;
  const config::Hardware read = config::read_hardware(folder.path() + "/gpu.yaml");
  CHECK(read.gpu.stream_efficiency == found.gpu.stream_efficiency);
  CHECK(read.gpu.stream_efficiency.origin == Origin::kFitted);
  CHECK(read.gpu.floor_score.origin != Origin::kFitted);  // this number was not measured
  CHECK(read.gpu.attention.row.x == std::vector<double>{4, 8});
}

TEST_CASE("damaged results are read or rejected, and have no other effect") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  json doc = host_document();
  time_rows(doc, path, host_truth(), calibrate::host_cases, 0.01);
  const auto error_with = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_of(
        [&] { calibrate::fit_host(calibrate::read_results(path), made_up_request(machine_of("h100-sxm"))); });
  };
  CHECK_THAT(error_with("{"), Contains("results.json:1:2: not JSON"));
  CHECK_THAT(error_with("{}"), Contains("\"schema\" is missing"));
  CHECK_THAT(error_with(R"({"schema":"kvcast-kernels/2"})"), Contains("schema is not kvcast-kernels/1"));
  CHECK_THAT(error_with(R"({"schema":"kvcast-kernels/1","environment":{},"rows":{}})"), Contains("expected a list"));
  CHECK_THAT(error_with(R"({"schema":"kvcast-kernels/1","environment":{},"rows":[]})"), Contains("states no cores"));
  CHECK_THAT(error_with(R"({"schema":"kvcast-kernels/1","environment":{"cores":4},"rows":[]})"),
             Contains("no usable case of cpu_dram, all threads"));
  json late = doc;
  late["rows"][3]["time_s"]["median"] = -1;
  CHECK_THAT(error_with(late.dump()), Contains("row 3: the median time is no positive number"));
  json skipped = doc;
  for (json& row : skipped["rows"]) row["skip_reason"] = "too fast";
  CHECK_THAT(error_with(skipped.dump()), Contains("no usable case"));

  json some = doc;
  some["rows"] = json::array();
  for (std::size_t i = 0; i < doc["rows"].size(); i += 5) some["rows"].push_back(doc["rows"][i]);
  const std::string whole = some.dump();
  int refused = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Stream s = Stream(31).child({i});
    std::string text = whole;
    for (std::uint64_t edit = 0; edit <= s.below(0, 3); ++edit) {
      static const std::string kBits[] = {"{", "}", "[", "]", "\"", ",", "null", "-", "1e999", "\"threads\"", "0"};
      text.replace(s.below(10 + 2 * edit, text.size()), s.below(11 + 2 * edit, 6), kBits[s.below(20 + edit, 11)]);
    }
    std::ofstream(path) << text;
    try {
      calibrate::host_cases(calibrate::read_results(path));
    } catch (const UserError&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("results of another measuring program are rejected, but not those that do not name their program") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  const auto refused = [&](json doc, const char* program, auto fit) {
    if (program != nullptr) doc["environment"]["program"] = program;
    write(doc, path);
    const std::string error =
        error_of([&] { fit(calibrate::read_results(path), made_up_request(machine_of("h100-sxm"))); });
    return error.find("this calibration fits those of") == std::string::npos ? "" : error;
  };
  const json host = empty_document({{"cores", 4}}), gpu = empty_document({{"device", "made up"}});
  CHECK_THAT(refused(host, "kvcast-kernels", calibrate::fit_host),
             Contains("results.json: results of kvcast-kernels;") && Contains("kvcast-kernels-cpu"));
  CHECK_THAT(refused(gpu, "kvcast-kernels-cpu", calibrate::fit_gpu), Contains("results of kvcast-kernels-cpu;"));
  CHECK(refused(host, "kvcast-kernels-cpu", calibrate::fit_host).empty());
  CHECK(refused(gpu, "kvcast-kernels", calibrate::fit_gpu).empty());
  CHECK(refused(host, nullptr, calibrate::fit_host).empty());
  CHECK(refused(gpu, nullptr, calibrate::fit_gpu).empty());
}

}  // namespace kvcast::tests
