// Choices between numbers of replicas, prefill apart or not, tiers and policies, by what each setting serves.
#include <catch2/catch.hpp>

#include "plan/question.hpp"
#include "result/metric.hpp"
#include "study/study.hpp"

namespace kvcast::tests {
namespace {

using namespace kvcast::plan;
using nlohmann::json;

const std::string kFleet =
    "model: llama-3.2-1b\nhardware: l40s\nframework: vllm\nscore: none\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\nprice_per_hour: 1\n";
const std::string kPrompts =
    "policy: full\ntraffic: {rate: 4, requests: 120, prompt_tokens: 4000, output_tokens: 32, slo: {ttft: 1 s, tpot: 20 "
    "ms}}\n";

Answer chosen(const std::string& run, const std::string& lists) {
  Experiments experiments({});
  return read_plan(config::parse_yaml(run + "plan:\n  - choose: {" + lists + "}\n", "plan.yaml"))
      .front()
      ->answer(experiments);
}

// The setting with this value of a key.
const json& with(const Answer& answer, const char* key, const std::string& value) {
  for (const json& one : answer.data.at("settings"))
    if (one.at("config").at(key) == value) return one;
  FAIL("no setting has " << key << " " << value);
  return answer.data;
}

// Returns whether a setting of the answer keeps the SLO at so many requests a second, with a queue that does not grow.
bool keeps_up(const std::string& run, const json& setting, double rate) {
  config::Node node = config::parse_yaml(run, "run.yaml");
  const auto put = [&](const std::string& key, const std::string& value) {
    node = node.with(key, config::parse_yaml(value, "setting"));
  };
  for (const auto& [key, value] : setting.at("config").items()) put(key, value.get<std::string>());
  put("traffic.rate", std::to_string(rate));
  const result::Result served = study::run_all({{node, {}, {}}}, {}).front();
  return result::value(served, *result::find_metric("serving.slo_share")).value() >= 0.99 &&
         served.service->summary.state != serving::Trend::kSaturated;
}

}  // namespace

TEST_CASE("a choice of replicas and of prefill apart has the capacity of each, per its cost") {
  const Answer answer = chosen(kFleet + kPrompts, "deployment.replicas: [1, 2], deployment.prefill_replicas: [0, 1]");
  CHECK(answer.data.at("grid") == 4);
  double before = 0;
  for (const json& one : answer.data.at("settings")) {
    INFO(one.dump());
    const double rate = one.at("capacity_per_s"), cost = one.at("cost_per_million_output_tokens");
    CHECK(keeps_up(kFleet + kPrompts, one, rate));
    CHECK_FALSE(keeps_up(kFleet + kPrompts, one, 1.05 * rate));
    const auto gpus = [&](const char* key) { return std::stod(one.at("config").at(key).get<std::string>()); };
    const double all = gpus("deployment.replicas") + gpus("deployment.prefill_replicas");
    CHECK(cost == Approx(all / 3600 / (rate * 32) * 1e6));
    CHECK(cost >= before);  // the cheapest first
    before = cost;
  }
}

TEST_CASE("a choice of tiers pays where sessions do not fit the GPU") {
  // Ten sessions of some 9,000 tokens, 32 KiB each, in the 5 % of the memory that the weights leave.
  const std::string sessions =
      "policy: full\ntraffic: {rate: 1, requests: 60, prompt_tokens: 8000, output_tokens: 32, sessions: {turns: 3, "
      "turn_tokens: 500, think_time: 5 s}, slo: {ttft: 300 ms}}\nscheduler: {memory_utilization: 0.13}\n";
  const Answer answer = chosen(kFleet + sessions, "scheduler.host_cache: [0, 20 GB]");
  const double without = with(answer, "scheduler.host_cache", "0").at("capacity_per_s");
  const double beside = with(answer, "scheduler.host_cache", "20 GB").at("capacity_per_s");
  CHECK(beside > 1.1 * without);
  CHECK(answer.data.at("best").front().at("config").at("scheduler.host_cache") == "20 GB");
}

}  // namespace kvcast::tests
