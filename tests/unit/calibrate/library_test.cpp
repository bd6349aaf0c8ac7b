// Kernels of kvcast's own give a lower bound of a machine's speed; libraries' kernels give the speed itself.
#include <catch2/catch.hpp>

#include "calibrate/machine.hpp"
#include "calibrate/read_back.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "unit/calibrate/synthetic.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// The chip of the base, on which kvcast's prefill reaches half of the speed that the base's source states. `library`:
// an efficiency of a library's kernel in the same cases, a row a case; 0 if none was measured.
calibrate::MachineResult fitted(const config::Hardware& base, double own, double library, bool own_kernels = false) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  config::Hardware truth = base;
  truth.gpu.attention_correction.reset();
  truth.gpu.prefill_efficiency.value = own;
  json doc = gpu_document();
  json& environment = doc["environment"];
  environment["sm_count"] = base.gpu.sm_count.value;
  environment["hbm_peak"] = base.gpu.hbm_bandwidth.value, environment["tensor_peak"] = base.gpu.tensor_flops.value;
  time_rows(doc, path, truth, calibrate::gpu_cases, 0);
  if (library > 0) {
    json fast = doc;
    truth.gpu.prefill_efficiency.value = library;
    time_rows(fast, path, truth, calibrate::gpu_cases, 0);
    for (json& row : fast["rows"]) {
      if (row["bench"] != "prefill_attention") continue;
      row["axes"]["by"] = "FlashAttention-3 \"9\"";
      doc["rows"].push_back(row);
    }
    write(doc, path);
  }
  calibrate::MachineRequest request = made_up_request(base);
  request.own_kernels = own_kernels;
  return calibrate::fit_gpu(calibrate::read_results(path), request);
}

}  // namespace

TEST_CASE("a link that is faster than its stated generation gets the oldest generation that is fast enough",
          "[minutes]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  config::Hardware truth = machine_of("h100-sxm");
  truth.gpu.attention_correction.reset();
  json doc = gpu_document();
  time_rows(doc, path, truth, calibrate::gpu_cases, 0);
  doc["environment"]["pcie_generation_under_load"] = 2;
  write(doc, path);
  const auto result = calibrate::fit_gpu(calibrate::read_results(path), made_up_request(machine_of("h100-sxm")));
  const config::Link& link = result.hardware.link;
  // 16 lanes of generation 5 carry 63 GB/s, of generation 4 half of that, which is less than what was measured.
  CHECK(truth.link.h2d_bandwidth > 32e9);
  CHECK(link.h2d_bandwidth == Approx(truth.link.h2d_bandwidth).epsilon(0.02));
  CHECK(link.theory_bandwidth == Approx(63e9).epsilon(0.01));
  CHECK_THAT(link.theory_bandwidth.source, Contains("PCIe 5: copies were faster"));
}

TEST_CASE("the rate of a link in both directions is not rounded above the sum of the two", "[minutes]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/results.json";
  config::Hardware truth = machine_of("h100-sxm"), base = truth;
  base.link.both_bandwidth.value = 200e9;
  json doc = gpu_document();
  json& rows = doc["rows"];
  rows.erase(std::remove_if(rows.begin(), rows.end(), [](const json& row) { return row["bench"] != "host_copy"; }),
             rows.end());
  for (const double d2h : {55.1e9, 55.3e9, 55.5e9, 55.7e9, 55.9e9}) {  // three digits of 110.7 GB/s are 111 GB/s
    truth.link.h2d_bandwidth.value = 55.4e9, truth.link.d2h_bandwidth.value = d2h;
    time_rows(doc, path, truth, calibrate::gpu_cases, 0);
    const auto result = calibrate::fit_gpu(calibrate::read_results(path), made_up_request(base));
    CHECK(result.hardware.link.both_bandwidth > 107e9);
    CHECK(error_of([&] { calibrate::check_profile(result.yaml); }) == "no error");
  }
}

TEST_CASE("a slower kernel of kvcast's own does not replace a number that has a source", "[minutes]") {
  config::Hardware base = machine_of("h100-sxm");
  base.gpu.attention_correction.reset();
  base.gpu.prefill_efficiency = {0.62, Origin::kLiterature, 0.1, "a paper"};
  const auto slow = fitted(base, 0.31, 0);
  REQUIRE(slow.bounds_below.size() == 1);
  CHECK_THAT(slow.bounds_below.front(), Contains("prefill attention: kvcast's own kernels take 1.9"));
  CHECK(slow.hardware.gpu.prefill_efficiency == 0.62);
  CHECK(slow.hardware.gpu.prefill_efficiency.source == "a paper");

  // No pipeline reads a prompt, so that --own-kernels makes no difference to it.
  CHECK(fitted(base, 0.31, 0, true).hardware.gpu.prefill_efficiency == 0.62);
  CHECK(fitted(base, 0.31, 0.58, true).hardware.gpu.prefill_efficiency == Approx(0.58).epsilon(0.02));

  // It does replace a smaller number, and an assumed one.
  const auto fast = fitted(base, 0.7, 0);
  CHECK(fast.bounds_below.empty());
  CHECK(fast.hardware.gpu.prefill_efficiency == Approx(0.7).epsilon(0.02));
  base.gpu.prefill_efficiency.origin = Origin::kAssumed;
  const auto assumed = fitted(base, 0.31, 0);
  CHECK(assumed.bounds_below.empty());
  CHECK(assumed.hardware.gpu.prefill_efficiency == Approx(0.31).epsilon(0.02));
}

TEST_CASE("the faster of a library's row and kvcast's own is fitted, and the source names the library", "[minutes]") {
  config::Hardware base = machine_of("h100-sxm");
  base.gpu.attention_correction.reset();
  base.gpu.prefill_efficiency = {0.62, Origin::kLiterature, 0.1, "a paper"};
  const auto with_library = fitted(base, 0.31, 0.58);
  CHECK(with_library.bounds_below.empty());
  const Value& found = with_library.hardware.gpu.prefill_efficiency;
  CHECK(found == Approx(0.58).epsilon(0.02));
  CHECK_THAT(found.source, Contains("3 cases, 3 of them of FlashAttention-3"));
  // A slower library's row is ignored: kvcast's own rows are a lower bound again.
  CHECK(fitted(base, 0.31, 0.2).bounds_below.size() == 1);
}

}  // namespace kvcast::tests
