// Findings of stores whose rows other processes, or another order of the sweep, have written.
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "app/process.hpp"
#include "app/stored_results.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

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
  const std::string config = scratch.write("sweep.yaml", kSweep);
  run(config, scratch / "whole");
  REQUIRE(findings_of(scratch / "whole").size() > 3);
  REQUIRE(kvcast({"merge", scratch / "whole", "-o", scratch / "merged"}).code == 0);
  CHECK(findings_of(scratch / "merged") == findings_of(scratch / "whole"));
  CHECK(keys_of(scratch / "merged") == keys_of(scratch / "whole"));

  std::string text = kSweep;
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
