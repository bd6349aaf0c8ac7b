// Attention over unequal lengths, passes with a chunk, and sparse latent attention; expected numbers from closed forms.
#include "validate/attention_works.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/hardware.hpp"
#include "support/error_of.hpp"
#include "unit/validate/kernel_rows.hpp"

namespace kvcast::tests {

using namespace validate;
using nlohmann::json;

namespace {

json measured_row(const std::string& bench, const json& axes, const json& work = json::object(), double seconds = 1) {
  return kernel_row(bench, axes, seconds, "cold", work);
}

double predicted_us(const json& row) { return *judged_kernels(json::array({row})).cases.at(0).predicted; }

json ragged(const std::string& profile, double longest) {
  const json axes = {{"batch", 8}, {"tokens", 32768}, {"kv_heads", 8},      {"group", 4},
                     {"page", 32}, {"dim", 128},      {"profile", profile}, {"parts", "by_length"}};
  return measured_row("ragged_attention", axes, {{"sum", 64 * 32768}, {"longest", longest}});
}

json pass(const std::string& by, const std::string& what, int group, double seconds) {
  json axes = {{"kv_heads", 8}, {"group", group}, {"dim", 128}, {"what", what}, {"by", by}};
  if (what != "decodes") axes["chunk"] = 2048, axes["seen"] = 10240;
  if (what != "chunk") axes["batch"] = 64, axes["context"] = 32768;
  return measured_row("mixed_attention", axes, json::object(), seconds);
}

// The share of decodes in a pass with a chunk, and the suite's case for the chunk.
std::pair<Case, Case> share_of(const std::string& by, int group) {
  const Suite suite = judged_kernels(
      {pass(by, "chunk", group, 1e-3), pass(by, "decodes", group, 3e-3), pass(by, "fused", group, 10e-3)});
  REQUIRE(suite.cases.size() == 4);
  REQUIRE(suite.cases[2].unit == "x");
  return {suite.cases[2], suite.cases[0]};
}

json index_row(int shared) {
  return measured_row("index_scores", {{"rows", 64},
                                       {"context", 131072},
                                       {"heads", 64},
                                       {"dim", 128},
                                       {"shared", shared},
                                       {"by", "Triton, one kernel"}});
}

const config::Gpu& h100() {
  static const config::Gpu gpu = config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/h100-sxm.yaml").gpu;
  return gpu;
}

}  // namespace

TEST_CASE("rows of unequal lengths cost their sum, waits for the longest row, and a factor for other contexts") {
  const double equal = predicted_us(ragged("equal", 32768));
  // 1.07 GB at no more than the memory's bandwidth.
  CHECK(equal > 1e6 * 64 * 32768 * 512 / h100().hbm_bandwidth);
  CHECK(predicted_us(ragged("duo", 61681)) == Approx(h100().unequal_contexts * equal).epsilon(0.02));
  // A row that is longer than the others take together holds its SMs.
  CHECK(predicted_us(ragged("duo", 64 * 32768 - 63)) > 1.5 * equal);
  CHECK(predicted_us(ragged("sequence", 32768)) == Approx(h100().unequal_contexts * equal).epsilon(0.01));
}

TEST_CASE(
    "decodes beside a chunk are read once for each head by FlashAttention-2, and once in all by FlashAttention-3") {
  const auto [packed, chunk] = share_of("FlashAttention-3", 8);
  CHECK(*packed.predicted == Approx(1));
  CHECK(*packed.expected == Approx(3));  // (10 - 1) / 3
  CHECK(*share_of("PyTorch, FlashAttention-2", 8).first.predicted == Approx(8).epsilon(0.02));
  const auto [reread, slower] = share_of("PyTorch, FlashAttention-2", 4);
  CHECK(*reread.predicted == Approx(4).epsilon(0.02));
  // Each of 2048 tokens sees 8192 before the chunk and half of the chunk; two products of 2 FLOP for 32 heads.
  const double flops = 4.0 * 32 * 128 * (2048 * 8192.0 + 2048 * 2049 / 2.0);
  CHECK(*slower.predicted > 1e6 * flops / (h100().tensor_flops * h100().flash2_efficiency));
  CHECK(*slower.predicted == Approx(1e6 * flops / (h100().tensor_flops * h100().flash2_efficiency)).epsilon(0.15));
  CHECK(*chunk.predicted == Approx(2e6 * flops / (h100().tensor_flops * h100().prefill_efficiency)).epsilon(0.15));
}

TEST_CASE("a share needs both parts of its pass, and enters no budget of times") {
  const std::string by = "FlashAttention-3";
  const Suite alone = judged_kernels(
      {pass(by, "chunk", 4, 1e-3), pass(by, "fused", 4, 10e-3), pass("PyTorch, FlashAttention-2", "decodes", 4, 3e-3)});
  CHECK(std::ranges::none_of(alone.cases, [](const Case& c) { return c.unit == "x"; }));
  // Apart from shares, all three are predicted exactly: the budgets are those of no error.
  json rows = {pass(by, "chunk", 4, 1), pass(by, "decodes", 4, 1), pass(by, "fused", 4, 2)};
  const Suite first = judged_kernels(rows);
  for (const Case& c : first.cases) {
    for (json& row : rows) {
      if (c.unit == "us" && c.id.find("what=" + row["axes"]["what"].get<std::string>()) != std::string::npos)
        row["time_s"]["median"] = 1e-6 * *c.predicted;
    }
  }
  rows[0]["time_s"]["median"] = 0.5 * rows[0]["time_s"]["median"].get<double>();  // so that the share is off
  const Suite suite = judged_kernels(rows);
  REQUIRE(suite.cases.size() == 4);
  CHECK(*suite.budgets[0].value == Approx(0).margin(1e-6));  // the median of 0, 0 and 100 %
}

TEST_CASE("an indexer reads the keys of each sequence, and multiplies those of one sequence for all its queries") {
  const double keys = 64.0 * 131072 * (128 + 4), flops = 2.0 * 64 * 131072 * 64 * 128;
  CHECK(predicted_us(index_row(0)) > 1e6 * keys / h100().hbm_bandwidth);
  CHECK(predicted_us(index_row(0)) < 1.4e6 * keys / h100().hbm_bandwidth);
  const double products = flops / (h100().tensor_flops * h100().prefill_efficiency * h100().fp8_rate);
  CHECK(predicted_us(index_row(1)) > 1e6 * products);  // and a launch, and SMs that idle in the last round
  CHECK(predicted_us(index_row(1)) < 1.15e6 * products);
  json apart = index_row(1);
  apart["axes"]["by"] = "PyTorch, scaled products";
  // The products of all heads are written and read, and once more by each of ReLU and the sum.
  CHECK(predicted_us(apart) > 1e6 * 3 * 2 * 64.0 * 131072 * 64 / h100().hbm_bandwidth);
}

TEST_CASE("gathers and selections are compared where no fit reads them") {
  const auto gather = [](int bytes) {
    return measured_row("hbm_gather", {{"row_bytes", bytes}, {"rows", 1 << 20}, {"gathered", 131072}, {"run", 1}},
                        {{"bytes", 131072.0 * (2 * bytes + 4)}});
  };
  const auto copy = [](int piece) {
    return measured_row("zero_copy_gather", {{"piece", piece}, {"bytes", 1 << 27}, {"blocks", 128}});
  };
  const auto topk = [](int n, const char* by) {
    json row = measured_row("topk", {{"rows", 8}, {"n", n}, {"k", 2048}});
    if (by != nullptr) row["axes"]["by"] = by;
    return row;
  };
  const Suite suite =
      judged_kernels({gather(1024), copy(4096), topk(65536, nullptr), gather(656), gather(1152), copy(656), copy(1152),
                      topk(32768, nullptr), topk(65536, "PyTorch, topk"), topk(131072, "PyTorch, topk")});
  REQUIRE(suite.cases.size() == 7);
  CHECK(*suite.cases[0].predicted > 1e6 * 2 * 131072 * 656.0 / h100().hbm_bandwidth);
  CHECK(*suite.cases[2].predicted > 1e6 * (1 << 27) / 63e9);  // PCIe 5 with 16 lanes
  CHECK(*suite.cases[6].predicted > *suite.cases[5].predicted);
}

TEST_CASE("a row that lacks what its work needs is refused by name") {
  const auto without = [](json row, const std::string& axis) {
    row["axes"].erase(axis), row["work"].erase(axis);
    return error_of([&] { judged_kernels(json::array({row})); });
  };
  CHECK_THAT(without(ragged("duo", 40000), "longest"), Catch::Contains("states no longest"));
  CHECK_THAT(without(ragged("duo", 40000), "profile"), Catch::Contains("profile"));
  CHECK_THAT(without(pass("x", "fused", 4, 1), "seen"), Catch::Contains("seen"));
  CHECK_THAT(without(pass("x", "fused", 4, 1), "what"), Catch::Contains("what"));
  CHECK_THAT(without(index_row(0), "context"), Catch::Contains("context"));
}

}  // namespace kvcast::tests
