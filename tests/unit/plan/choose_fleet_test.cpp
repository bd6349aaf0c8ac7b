// Choices between numbers of replicas, prefill apart or not, tiers and policies, by what each setting serves.
#include <catch2/catch.hpp>

#include "plan/question.hpp"
#include "result/metric.hpp"
#include "study/study.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
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

TEST_CASE("a choice of replicas and of prefill apart has the capacity of each, per its cost", "[minutes]") {
  const Answer answer =
      chosen(kFleet + kPrompts, "search: all, deployment.replicas: [1, 2], deployment.prefill_replicas: [0, 1]");
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

TEST_CASE("a choice of tiers pays where sessions do not fit the GPU", "[minutes]") {
  // Ten sessions of some 9,000 tokens, 32 KiB each, in the 5 % of the memory that the weights leave.
  const std::string sessions =
      "policy: full\ntraffic: {rate: 1, requests: 60, prompt_tokens: 8000, output_tokens: 32, sessions: {turns: 3, "
      "turn_tokens: 500, think_time: 5 s}, slo: {ttft: 300 ms}}\nscheduler: {memory_utilization: 0.13}\n";
  const Answer answer = chosen(kFleet + sessions, "search: all, scheduler.host_cache: [0, 20 GB]");
  const double without = with(answer, "scheduler.host_cache", "0").at("capacity_per_s");
  const double beside = with(answer, "scheduler.host_cache", "20 GB").at("capacity_per_s");
  CHECK(beside > 1.1 * without);
  CHECK(answer.data.at("best").front().at("config").at("scheduler.host_cache") == "20 GB");
}

TEST_CASE("a choice leaves out what cannot tie with the best, and has the answer of all", "[minutes]") {
  const std::string lists =
      "policy: [full, {name: snapkv, budget: 1024}, {name: freekv, budget: 1024}], deployment.replicas: [1, 2], "
      "deployment.prefill_replicas: [0, 1]";
  const std::string run = kFleet + "policy: full\n" + kPrompts.substr(kPrompts.find("traffic"));
  const auto answered = [&](const std::string& search, std::size_t& runs) {
    Experiments experiments({});
    const Answer answer =
        read_plan(config::parse_yaml(run + "plan:\n  - choose: {" + search + lists + "}\n", "plan.yaml"))
            .front()
            ->answer(experiments);
    runs = experiments.take_requested().size();
    return answer;
  };
  std::size_t runs_of_all = 0, runs_of_best = 0;
  const Answer all = answered("search: all, ", runs_of_all), best = answered("", runs_of_best);
  CHECK(best.data.at("best") == all.data.at("best"));
  CHECK(best.text == all.text);
  CHECK(runs_of_best < runs_of_all / 2);
  const json& settings = best.data.at("settings");
  CHECK(settings.size() + best.data.at("out_of_reach").size() == 12);
  // Settings that were left out serve less than they need; the others have their own capacity.
  for (const json& one : all.data.at("settings")) {
    const auto same = [&](const json& other) { return other.at("config") == one.at("config"); };
    for (const json& out : best.data.at("out_of_reach")) {
      if (same(out)) CHECK(one.at("capacity_per_s").get<double>() < out.at("capacity_below_per_s").get<double>());
    }
    const auto found = std::ranges::find_if(settings, same);
    if (found != settings.end()) CHECK(found->at("capacity_per_s") == one.at("capacity_per_s"));
  }
}

TEST_CASE("the capacity of a closed loop is the most clients within the targets") {
  const std::string run =
      kFleet + "policy: full\ntraffic: {concurrency: 8, requests: 100, prompt_tokens: 4000, output_tokens: 32}\n";
  const Answer answer = chosen(run, "targets: {serving.ttft_s.p90: <= 1 s}, deployment.replicas: [1, 2]");
  for (const json& one : answer.data.at("settings")) {
    const auto late = [&](std::int64_t clients) {
      config::Node node = config::parse_yaml(run, "run.yaml");
      for (const auto& [key, value] : one.at("config").items())
        node = node.with(key, config::parse_yaml(value.get<std::string>(), "setting"));
      node = node.with("traffic.concurrency", config::parse_yaml(std::to_string(clients), "setting"));
      const result::Result served = study::run_all({{node, {}, {}}}, {}).front();
      return result::value(served, *result::find_metric("serving.ttft_s.p90")).value() > 1;
    };
    const std::int64_t clients = one.at("clients");
    CHECK_FALSE(late(clients));
    CHECK(late(clients + std::max<std::int64_t>(1, clients / 50 + 1)));
  }
}

}  // namespace kvcast::tests
