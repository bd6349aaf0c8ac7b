// Runs on several replicas: sums and costs of a fleet, what prefill and decode apart send, and answers that grow.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "result/metric.hpp"
#include "study/study.hpp"
#include "value_of.hpp"

namespace kvcast::tests {

using namespace study;

namespace {

constexpr double kTokenBytes = 32768;  // llama-3.2-1b: 16 layers, 8 heads of 64 numbers of 2 bytes, keys and values

result::Result fleet_result(const std::string& rest, int threads = 1) {
  StudyOptions options;
  options.threads = threads;
  const std::string text =
      "model: llama-3.2-1b\nhardware: l40s\nframework: vllm\ntrace: {recipe: needle, layers: 1, steps: 4}\n" + rest;
  Point point{config::parse_yaml(text, "test"), {}, {}};
  point.ask.effects = simulate::Effects::kNone;
  std::vector<result::Result> results = run_all({std::move(point)}, options);
  REQUIRE(results.front().error == "");
  return results.front();
}

TEST_CASE("two replicas serve twice the rate of one, at the same cost and in any number of threads") {
  const auto run = [](int replicas, double rate, int requests, int threads) {
    return fleet_result(
        fmt::format("policy: full\nprice_per_hour: 2\ntraffic: {{rate: {}, requests: {}, prompt_tokens: 2000, "
                    "output_tokens: 100, process: constant}}\ndeployment: {{replicas: {}}}\n",
                    rate, requests, replicas),
        threads);
  };
  // Arrivals at even times are dealt out evenly.
  const result::Result one = run(1, 5, 100, 1), two = run(2, 10, 200, 1), parallel = run(2, 10, 200, 3);
  CHECK(value_of(two, "serving.ttft_s.mean") == Approx(value_of(one, "serving.ttft_s.mean")).epsilon(1e-9));
  CHECK(value_of(two, "serving.tpot_s.p99") == Approx(value_of(one, "serving.tpot_s.p99")).epsilon(1e-3));
  CHECK(value_of(two, "serving.running.max") == value_of(one, "serving.running.max"));
  CHECK(value_of(two, "serving.kv_capacity_tokens") == value_of(one, "serving.kv_capacity_tokens"));
  CHECK(value_of(two, "serving.completed") == 200);
  // Two GPUs of 2 an hour.
  CHECK(value_of(two, "serving.cost_per_million_output_tokens") ==
        Approx(2 * 2 / 3600.0 / value_of(two, "serving.output_tokens_per_s") * 1e6));
  for (const char* path : {"serving.ttft_s.mean", "serving.itl_s.p99", "serving.running.mean", "serving.busy_share"})
    CHECK(value_of(two, path) == value_of(parallel, path));
}

TEST_CASE("the next replica, the least loaded or the one that knows the prompt: three different services") {
  const auto hits = [](const std::string& routing) {
    return fleet_result(
        fmt::format("policy: full\ntraffic: {{rate: 4, requests: 121, prompt_tokens: 1000, output_tokens: "
                    "50, sessions: {{turns: 4, turn_tokens: 200, think_time: 1 s}}}}\ndeployment: "
                    "{{replicas: 3, routing: {}}}\n",
                    routing));
  };
  // Loads are equal most of the time, so that the least loaded replica is the next one.
  const double dealt = value_of(hits("round_robin"), "serving.prefix_hit_share");
  const double least = value_of(hits("least_loaded"), "serving.prefix_hit_share");
  const double known = value_of(hits("prefix"), "serving.prefix_hit_share");
  CHECK(known > dealt + 0.1);
  CHECK(known > least + 0.1);
}

TEST_CASE("prefill and decode apart: a policy sends what it keeps") {
  const auto apart = [](const std::string& policy, const std::string& transfer, double rate = 0.5) {
    return fleet_result(
        fmt::format("policy: {}\ntraffic: {{rate: {}, requests: 12, prompt_tokens: 8192, output_tokens: "
                    "32, process: constant}}\ndeployment: {{replicas: 1, prefill_replicas: 1, transfer: "
                    "{{{}}}}}\n",
                    policy, rate, transfer));
  };
  const result::Result full = apart("full", "rate: 1 GB/s, post: 0 s");
  const result::Result few = apart("{name: snapkv, budget: 1024}", "rate: 1 GB/s, post: 0 s");
  CHECK(value_of(full, "serving.transfer_bytes") == Approx(8192 * kTokenBytes));
  CHECK(value_of(few, "serving.transfer_bytes") == Approx(1024 * kTokenBytes).epsilon(0.01));
  // Requests that come one at a time wait for their bytes alone.
  CHECK(value_of(full, "serving.transfer_s.mean") == Approx(8192 * kTokenBytes / 1e9).epsilon(1e-3));
  CHECK(value_of(few, "serving.transfer_s.mean") == Approx(1024 * kTokenBytes / 1e9).epsilon(0.01));
  CHECK(value_of(full, "serving.transfer_wait_s.mean") < 1e-3);
  // Layers that are sent while the next ones are computed leave the last one of 16, or what the link lacks.
  const result::Result layers = apart("full", "rate: 20 GB/s, post: 0 s, overlap: layers");
  CHECK(value_of(layers, "serving.transfer_s.mean") == Approx(8192 * kTokenBytes / 20e9 / 16 / 4).epsilon(0.05));
  // Descriptors: 512 blocks of 16 tokens, keys and values of 16 layers.
  const result::Result posted = apart("full", "rate: 1 GB/s, post: 1 us, latency: 2 ms");
  CHECK(value_of(posted, "serving.transfer_s.mean") - value_of(full, "serving.transfer_s.mean") ==
        Approx(512 * 32 * 1e-6 + 2e-3).epsilon(1e-3));
  CHECK_FALSE(result::value(fleet_result("policy: full\ntraffic: {rate: 1, requests: 3}\n"),
                            *result::find_metric("serving.transfer_s.mean")));
}

TEST_CASE("answers that grow are asked for") {
  const auto outputs = [](const std::string& more) {
    const result::Result r = fleet_result(
        "policy: full\ntraffic: {rate: 1, requests: 20, prompt_tokens: 500, output_tokens: 100" + more + "}\n");
    return value_of(r, "serving.output_tokens_per_s") * value_of(r, "serving.duration_s") / 20;
  };
  CHECK(outputs("") == Approx(100));
  CHECK(outputs(", length_factor: 1.25") == Approx(125));
  CHECK(outputs(", length_factor: published") == Approx(100));  // nothing is evicted
}

}  // namespace
}  // namespace kvcast::tests
