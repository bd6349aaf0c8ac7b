// Rows are made by hand; no GPU has run these kernels.
#include "validate/policy_kernels.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "config/hardware.hpp"
#include "hardware/number.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "unit/validate/kernel_rows.hpp"

namespace kvcast::tests {

using namespace validate;
using nlohmann::json;

namespace {

json beside(const std::string& direction, int copied, int kernels) {
  return kernel_row("copy_beside_stream",
                    {{"direction", direction}, {"copied", copied}, {"bytes", 1 << 30}, {"kernels", kernels}}, 1e-3);
}

// One row of every kernel.
json kernel_rows() {
  return {kernel_row("sparse_attention",
                     {{"batch", 8},
                      {"context", 131072},
                      {"kv_heads", 8},
                      {"group", 4},
                      {"page", 32},
                      {"tokens", 2048},
                      {"consistent", 0},
                      {"dim", 128}},
                     1e-4),
          kernel_row("kivi_attention", {{"batch", 8}, {"context", 32768}, {"kv_heads", 8}, {"group", 4}}, 1e-4),
          kernel_row("dim_score", {{"n", 131072}, {"kv_heads", 8}, {"group", 4}, {"dim", 128}, {"r", 32}}, 1e-4),
          kernel_row("keydiff", {{"tokens", 131072}, {"kv_heads", 8}}, 1e-4),
          kernel_row("snapkv_score", {{"tokens", 65536}, {"kv_heads", 8}, {"group", 4}, {"window", 32}, {"pool", 63}},
                     1e-4),
          kernel_row("page_summary", {{"tokens", 131072}, {"page", 32}, {"kv_heads", 8}, {"dim", 128}}, 1e-4),
          kernel_row("query_similarity", {{"batch", 8}, {"kv_heads", 8}, {"group", 4}, {"dim", 128}}, 1e-5, "batch"),
          kernel_row("lse_merge", {{"rows", 2048}, {"parts", 2}, {"dim", 128}}, 24e-6),
          kernel_row("lsh_hash", {{"vectors", 256}, {"tables", 150}, {"bits", 10}}, 1e-4),
          kernel_row(
              "centroid_recall",
              {{"kv_heads", 8}, {"group", 4}, {"centroids", 2048}, {"probes", 4}, {"list", 1280}, {"context", 131072}},
              1e-4, "cold", {{"ids", 8 * 4 * 1280}}),
          kernel_row("key_rebuild", {{"kv_heads", 8}, {"selected", 1024}, {"rank", 160}, {"context", 131072}}, 1e-4),
          kernel_row("page_score",
                     {{"reduce", "softmax_mean"}, {"pages", 8192}, {"kv_heads", 8}, {"group", 4}, {"dim", 128}}, 1e-4,
                     "cold", {{"flops", 134217728}}),
          beside("h2d", 1 << 26, 4)};
}

}  // namespace

TEST_CASE("every kernel of a policy is compared with the cost of its work") {
  const Suite suite = judged_kernels(kernel_rows());
  REQUIRE(suite.cases.size() == kernel_rows().size());
  for (const Case& c : suite.cases) {
    INFO(c.group);
    CHECK(*c.predicted > 1);  // us
    CHECK(*c.predicted < 2000);
    CHECK(*c.low < *c.predicted);
    CHECK(c.source == "kvcast-kernels on made by hand");
  }
  REQUIRE(suite.budgets.size() == 2);
  CHECK_FALSE(suite.passed());  // the times are made up
}

TEST_CASE("a copy and streaming kernels share the memory, and the longer of the two determines the time") {
  const config::Hardware machine = config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/h100-sxm.yaml");
  const double mib256 = 1 << 28, gib = 1 << 30, hbm = machine.gpu.hbm_bandwidth, link = machine.link.d2h_bandwidth;
  // A GiB is read in less than half a millisecond; the copy needs 5 ms, whatever the concurrent kernel does.
  const Suite copy = judged_kernels(json::array({beside("d2h", 1 << 28, 1)}));
  CHECK(*copy.cases[0].predicted == Approx(1e6 * mib256 / link).epsilon(0.01));
  // 64 GiB take 20 ms and more, during which the memory also serves the copy's bytes.
  const Suite kernels = judged_kernels(json::array({beside("d2h", 1 << 28, 64)}));
  const double streams = 64 * gib / (hbm * machine.gpu.stream_efficiency), both = streams + mib256 / hbm;
  CHECK(*kernels.cases[0].predicted == Approx(1e6 * both).epsilon(0.01));
}

TEST_CASE("scores without a softmax are used by a fit and are not validated again") {
  const json axes = {{"reduce", "group_max"}, {"pages", 8192}, {"kv_heads", 8}, {"group", 4}, {"dim", 128}};
  const Suite suite = judged_kernels({kernel_row("page_score", axes, 1e-4), beside("h2d", 1 << 26, 4)});
  CHECK(suite.cases.size() == 1);
}

TEST_CASE("a kernel takes the time of its bytes and blocks, and the time of events is subtracted from measurements") {
  json rows = kernel_rows();
  // Between events one empty kernel takes 5 us and eleven take 15: 1 us each, so that 4 us belong to the events.
  for (const auto& [kernels, seconds] : {std::pair(1, 5e-6), std::pair(11, 15e-6)}) {
    rows.push_back(kernel_row("launch_chain", {{"how", "stream"}, {"clock", "device"}, {"kernels", kernels}}, seconds));
  }
  const Suite suite = judged_kernels(rows);
  const Case& merge = suite.cases[7];
  REQUIRE(merge.group == "lse_merge");
  CHECK(*merge.expected == Approx(20));
  // 2048 query heads' outputs of 128 numbers in half precision and a sum in single precision, two of each; one written.
  const config::Gpu gpu = config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/h100-sxm.yaml").gpu;
  const double bytes = 2048.0 * 2 * (128 * 2 + 4) + 2048.0 * 128 * 2;
  const double transfer = bytes / (gpu.hbm_bandwidth * gpu.stream_efficiency), p = gpu.attention.overlap;
  // A block for each row, of 128 threads; the 132 SMs hold twelve each, 1584 of the 2048.
  const double held = bytes / (1584 * gpu.block_bandwidth * 128 / 512);
  const double both = std::pow(std::pow(held, p) + std::pow(transfer, p), 1 / p);
  const double seconds = gpu.gap_stream + gpu.floor_small + both;
  CHECK(*merge.predicted == Approx(1e6 * seconds).epsilon(0.02));
}

TEST_CASE("attention over selected tokens and copies concurrent with kernels are predicted on the project's GPUs") {
  std::map<std::string, std::map<std::string, std::vector<double>>> errors;
  for (const Case& c : policy_kernels({}).cases) {
    if (!c.group.starts_with("host")) errors[c.source][c.group].push_back(*relative_error(c));
  }
  REQUIRE(errors.size() == 2);
  for (auto& [source, by_group] : errors) {
    INFO(source);
    CHECK(by_group["sparse_attention"].size() == (source == "kvcast-kernels on NVIDIA H200" ? 87 : 96));
    CHECK(metrics::summarise_errors(by_group["sparse_attention"]).median < 0.1);
    CHECK(by_group["copy_beside_stream"].size() == 8);
    CHECK(metrics::summarise_errors(by_group["copy_beside_stream"]).max < 0.05);
  }
}

TEST_CASE("copies that alternate between streams wait for the kernels between them; copies on one stream do not wait") {
  const config::Link link = config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/h100-sxm.yaml").link;
  const auto turns = [](int streams, int kernel) {
    const json axes = {{"streams", streams}, {"kernel", kernel}, {"pieces", 4}, {"bytes", 16384}, {"groups", 24}};
    return 1e-6 * *judged_kernels(json::array({kernel_row("copy_turns", axes, 1e-4)})).cases.at(0).predicted;
  };
  // 96 copies of 16 KiB on one stream: each occupies the copy engine for its start and its bytes.
  const double engine = hardware::at(link.engine_piece, 16384).value + 16384 / link.h2d_bandwidth;
  CHECK(turns(1, 0) == Approx(96 * engine + link.copy_latency).epsilon(0.02));
  CHECK(turns(2, 0) == Approx(turns(1, 0)).epsilon(0.02));
  // The latency of a copy is paid 24 times if a kernel follows each group.
  CHECK(turns(1, 1) > 96 * engine + 24 * link.copy_latency);
  // On two streams one copies while the other waits, but each copy takes the engine's turn longer.
  CHECK(turns(2, 1) < turns(1, 1));
  CHECK(turns(2, 1) > 96 * (engine + link.engine_turn));
}

TEST_CASE("what the kernels between copies read, and where they run, is part of the prediction") {
  const auto turns = [](int kernel, const json& reads) {
    json axes = {{"streams", 1}, {"kernel", kernel}, {"pieces", 4}, {"bytes", 65536}, {"groups", 24}};
    if (!reads.is_null()) axes["reads"] = reads;
    return *judged_kernels(json::array({kernel_row("copy_turns", axes, 1e-4)})).cases.at(0).predicted;
  };
  CHECK(turns(1, "group") == turns(1, nullptr));
  CHECK(turns(1, "other") == turns(1, nullptr));
  // A kernel without reads takes its floor only, and each group still waits for it.
  CHECK(turns(1, "nothing") < turns(1, "group"));
  CHECK(turns(1, "nothing") > 1.1 * turns(0, nullptr));
  // Kernels on a stream apart are hidden behind the copies.
  CHECK(turns(1, "apart") == Approx(turns(0, nullptr)).epsilon(0.02));
  CHECK(error_of([&] { turns(1, "all"); }).find("unknown reads \"all\"") != std::string::npos);
}

TEST_CASE("gathers of the host from large tables are priced by the rates of small ones") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/host.json";
  const double rows = 16 * 4096, bytes = 256 * rows;
  json all = json::array(
      {kernel_row("cpu_gather_dot", {{"dim", 128}, {"rows", 1 << 28}, {"gathered", 4096}, {"run", 1}, {"threads", 16}},
                  1e-3, "cold", {{"bytes", bytes}, {"flops", bytes}, {"rows", rows}}),
       kernel_row("cpu_topk", {{"rows", 8}, {"n", 4096}, {"k", 512}, {"threads", 16}}, 1e-3, "batch")});
  std::ofstream(path) << json{
      {"schema", "kvcast-kernels/1"},
      {"environment", {{"program", "kvcast-kernels-cpu"}, {"host_cpu", "by hand"}, {"cores", 16}}},
      {"rows", all}};
  const Suite suite = policy_kernels({path, "h100-kvcast"});
  REQUIRE(suite.cases.size() == 2);
  const Case& c = suite.cases.front();
  CHECK(c.group == "host, cpu_gather_dot");
  // Each core: its pieces at the rate of 256 B, and its part of the tables' lines. Of the 131072 lines of its 4 GiB,
  // 4096 places meet 131072 (1 - exp(-1/32)) = 4033; of the 2048 pages of entries 2048 (1 - exp(-2)) = 1771.
  const config::Host host = config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/h100-kvcast.yaml").host;
  const double derate = host.all_core_derate;
  const double gather = bytes / 16 / (hardware::at(host.core_bandwidth, 256).value * derate);
  const double lines = (4033 + 2 * 1771) * host.core_translation / derate;
  const double multiply = bytes / 16 / (host.core_flops * derate);
  CHECK(*c.predicted == Approx(1e6 * (host.dispatch + gather + lines + multiply)).epsilon(0.01));
  CHECK(*c.expected == Approx(1000));
}

TEST_CASE("the project's own results are recognised by name, and so are copies of them") {
  const std::string own = KVCAST_SOURCE_DIR "/configs/validation/gpu/h200-kvcast/kernels.json";
  const TemporaryDirectory folder;
  std::filesystem::copy_file(own, folder.path() + "/mine.json");
  const Suite named = policy_kernels({own, "h200-kvcast"});
  const int blind = headline(named).errors.n;
  // Ten rows of the softmax over pages are not blind, and those of the H100 all are.
  CHECK(blind == static_cast<int>(named.cases.size()) - 10);
  // Work of the host has no origin of its own and is in no headline.
  const Suite all = policy_kernels({});
  const auto of_host = std::ranges::count_if(all.cases, [](const Case& c) { return c.group.starts_with("host, "); });
  CHECK(of_host == 15);
  CHECK(headline(all).errors.n == static_cast<int>(all.cases.size()) - 10 - of_host);
  const Suite copy = policy_kernels({folder.path() + "/mine.json", "h200-kvcast"});
  CHECK(headline(copy).errors.n == blind);
  CHECK(to_text(copy).find("budget kernel time, median error of all cases: ") != std::string::npos);
}

TEST_CASE("invalid results are rejected") {
  CHECK(error_of([] { policy_kernels({"gpu.json", ""}); }).find("--from needs --profile") != std::string::npos);
  CHECK(error_of([] { judged_kernels(json::array()); }).find("no row of a policy's kernel") != std::string::npos);
  CHECK(error_of([] {
          judged_kernels(json::array({kernel_row("keydiff", {{"tokens", 8}, {"heads", 1}}, 1e-4)}));
        }).find("kv_heads") != std::string::npos);
  const json turns = {{"streams", 1}, {"pieces", 4}, {"bytes", 16384}, {"groups", 24}};
  CHECK(error_of([&] {
          judged_kernels(json::array({kernel_row("copy_turns", turns, 1e-4)}));
        }).find("no number \"kernel\"") != std::string::npos);
}

}  // namespace kvcast::tests
