// Findings of stores whose rows other processes, or another order of the sweep, have written.
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "app/process.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"

namespace kvcast::tests {
namespace {

// Its axes are not in alphabetical order.
constexpr const char* kAxesInOrder =
    "name: merged\n"
    "model: llama-3.2-1b\n"
    "workload: {decode_tokens: 16}\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\n"
    "framework: {warmup_steps: 3, measured_steps: 3, sampled_contexts: 2}\n"
    "sweep:\n"
    "  workload.prompt_tokens: [300, 600]\n"
    "  hardware: [a100-40gb-pcie4, h100-sxm]\n"
    "  workload.batch: [1, 3]\n"
    "  cases:\n"
    "    - policy: full\n"
    "    - {policy.name: [quest, snapkv, exact_topk], policy.budget: [64, 128]}\n";

}  // namespace

TEST_CASE("a merged store, and one whose rows another order of the sweep has written, have the findings of one process",
          "[minutes]") {
  const Scratch scratch;
  const auto run = [](const std::string& config, const std::string& dir) {
    const Output o = kvcast({"sweep", config, "-o", dir});
    INFO(o.err);
    REQUIRE(o.code == 0);
  };
  const auto findings_of = [](const std::string& dir) {
    std::vector<std::array<std::string, 4>> findings;
    for (const auto& f : store::Store::open(dir, store::Store::Open::kExisting).findings())
      findings.push_back({f.title, f.text, f.detail, f.places});
    return findings;
  };
  const auto keys_of = [](const std::string& dir) {
    return store::Store::open(dir, store::Store::Open::kExisting).keys();
  };
  const std::string config = scratch.write("sweep.yaml", kAxesInOrder);
  run(config, scratch / "whole");
  REQUIRE(findings_of(scratch / "whole").size() > 3);
  REQUIRE(kvcast({"merge", scratch / "whole", "-o", scratch / "merged"}).code == 0);
  CHECK(findings_of(scratch / "merged") == findings_of(scratch / "whole"));
  CHECK(keys_of(scratch / "merged") == keys_of(scratch / "whole"));

  std::string text = kAxesInOrder;
  text.replace(text.find("[a100-40gb-pcie4, h100-sxm]"), 27, "[h100-sxm, a100-40gb-pcie4]");
  const std::string turned = scratch.write("turned.yaml", text);
  run(turned, scratch / "fresh");
  REQUIRE(findings_of(scratch / "fresh") != findings_of(scratch / "whole"));  // of the other machine first
  run(turned, scratch / "whole");
  CHECK(findings_of(scratch / "whole") == findings_of(scratch / "fresh"));
  CHECK(keys_of(scratch / "whole") == keys_of(scratch / "fresh"));

  // Damaged findings are refused by a report, and written anew by the sweep.
  store::Database(scratch / "whole/results.sqlite", false, 1000).execute("UPDATE findings SET text = 'x'");
  const Output report = kvcast({"report", scratch / "whole"});
  CHECK(report.code == 2);
  CHECK_THAT(report.err, Catch::Contains("the table findings is damaged") && Catch::Contains("run again"));
  run(turned, scratch / "whole");
  CHECK(findings_of(scratch / "whole") == findings_of(scratch / "fresh"));
}

}  // namespace kvcast::tests
