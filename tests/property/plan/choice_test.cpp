// Choices compared with a search of every batch.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plan/target.hpp"
#include "property/plan/asked.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using nlohmann::json;

TEST_CASE("a choice without batches finds the best of every batch, and nothing in its answer beats it") {
  Experiments e = make_experiments();
  const std::string settings = "{hardware.gpu.hbm_capacity: 6 GB}";
  const std::vector<std::string> policies = {"full", "{name: quest, budget: 256}", "{name: snapkv, budget: 512}"};
  for (const char* targets : {"{decode.tpot_s.mean: <= 1 s}", "{decode.tpot_s.mean: <= 4 ms}",
                              "{request.latency_s: <= 0.5 s, decode.tokens_per_s: '>= 400'}"}) {
    INFO(targets);
    const Asked asked =
        ask(e,
            fmt::format("choose: {{policy: [full, {{name: quest, budget: 256}}, {{name: snapkv, budget: "
                        "512}}], targets: {}, price_per_hour: {{l40s: 1}}}}",
                        targets),
            settings);
    const auto limits = read_targets(config::parse_yaml(targets, "targets.yaml"));
    double least = INFINITY;
    for (const std::string& policy : policies) {
      std::vector<ResultPtr> fits;
      bool certain = false;
      for (int b = 1; b <= 64; ++b) {
        const ResultPtr r = e.run(run_with(fmt::format(
            "{{policy: {}, workload.batch: {}, hardware.gpu.hbm_capacity: 6 GB, price_per_hour: 1}}", policy, b)));
        if (!r->has_times()) break;
        fits.push_back(r);
        certain = certain || !r->borderline;
      }
      for (const ResultPtr& r : fits) {
        if ((!certain || !r->borderline) && !missed(*r, limits))
          least = std::min(least, *result::value(*r, metric("cost")));
      }
    }
    REQUIRE(asked.data["best"].empty() == std::isinf(least));
    if (std::isinf(least)) continue;
    const auto cost = [](const json& entry) { return entry["metrics"]["cost_per_million_tokens"].get<double>(); };
    CHECK(cost(asked.data["best"][0]) <= 1.005 * least);
    CHECK(cost(asked.data["best"][0]) >= least * (1 - 1e-9));
    for (const char* list : {"best", "front"}) {
      for (const json& entry : asked.data[list]) CHECK(cost(entry) >= cost(asked.data["best"][0]));
    }
  }
}

}  // namespace
}  // namespace kvcast::tests
