// What a record says beside its numbers: origins and intervals, by hand.
#include <catch2/catch.hpp>

#include "unit/hardware/round_machine.hpp"
#include "workload/effects.hpp"
#include "workload/record.hpp"
#include "workload/record_parts.hpp"

using namespace kvcast;

namespace {

// 100 s, so many of them resting on a judgement and the others on measurements.
metrics::Attribution resting(double assumed) {
  metrics::Attribution time;
  time.exposed[static_cast<std::size_t>(graph::Kind::kGemm)] = 100;
  time.origin[static_cast<std::size_t>(Origin::kMeasured)] = 100 - assumed;
  time.origin[static_cast<std::size_t>(Origin::kAssumed)] = assumed;
  return time;
}

}  // namespace

TEST_CASE("a twentieth of the time names the origin of the whole, less does not") {
  CHECK(workload::resting_on(resting(5)) == Origin::kAssumed);
  CHECK(workload::resting_on(resting(4.9)) == Origin::kMeasured);
  CHECK(workload::resting_on(metrics::Attribution{}) == Origin::kExact);
}

TEST_CASE("a rate's interval is that of the time turned over") {
  config::Run run;
  run.hardware = test::round_machine();
  const replay::ReplayResult replay;
  workload::Experiment e;
  e.tokens_per_s = 100, e.tpot_mean_s = 0.03, e.ttft_s = 2;
  // Costs of one source make a step a quarter longer or a fifth shorter, and move no prefill.
  result::Effect& effect = e.effects.emplace_back();
  effect.source = "made up", effect.keys = workload::keys_of(run.hardware, "made up");
  effect.longer.step = 1.25, effect.shorter.step = 0.8;
  const nlohmann::json record = workload::to_json(e, {&run, nullptr, &replay});
  const auto interval = [&record](const char* key, double low, double high) {
    INFO(key);
    CHECK(record["intervals"][key][0].get<double>() == Approx(low));
    CHECK(record["intervals"][key][1].get<double>() == Approx(high));
  };
  interval("decode.tpot_s.mean", 0.03 * 0.8, 0.03 * 1.25);
  interval("decode.tokens_per_s", 100 / 1.25, 100 / 0.8);
  interval("prefill.ttft_s", 2, 2);
  // The numbers of the machine that are off together are named; a made-up machine's all come from one source.
  REQUIRE(record["sensitivities"].size() == 1);
  CHECK(record["sensitivities"][0]["keys"].size() > 10);
  CHECK(record["sensitivities"][0]["decode.tpot_s"] == nlohmann::json::array({0.8, 1.25}));
}
