// Requests of a service find content of earlier ones, by policy and by the caches behind the GPU.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "policies/all.hpp"
#include "result/metric.hpp"
#include "study/service.hpp"
#include "study/study.hpp"
#include "value_of.hpp"

namespace kvcast::tests {

using namespace study;

namespace {

// Two sessions of three turns, far apart in time: every prompt repeats what was said.
const std::string kSessions =
    "trace: {recipe: needle, layers: 1, steps: 4}\n"
    "traffic: {rate: 0.01, process: constant, requests: 6, prompt_tokens: 8192, output_tokens: 17, "
    "sessions: {turns: 3, turn_tokens: 1000, think_time: 1 s}}\n";

const std::string kDense = "model: llama-3.2-1b\nhardware: l40s\nframework: vllm\n";

result::Result served(const std::string& policy, const std::string& scheduler = "{}",
                      const std::string& engine = kDense) {
  const std::string text = engine + kSessions + "policy: " + policy + "\nscheduler: " + scheduler + "\n";
  return run_all({{config::parse_yaml(text, "test"), {}, {}}}, {}).front();
}

}  // namespace

TEST_CASE("a policy's class of reuse says what its later turns find") {
  // Prompts of 8192, 9209 and 10226 tokens. Of the first, 8192 + 16 tokens have been computed when it ends: 513 blocks.
  // The last of them is full when its last token is still in flight, and vLLM never enters it.
  const double all = 2 * (8192.0 + 9209 + 10226);
  const double blocks = 2 * (513.0 * 16 + (9209 + 16) / 16 * 16);
  const double entered = 2 * (8192.0 + (9209 + 16) / 16 * 16);
  const double kept = 2 * (8192.0 + 16 + 9209 + 16);
  for (const char* policy : {"full", "{name: quest, budget: 1024}"})
    CHECK(value_of(served(policy), "serving.prefix_hit_share") == Approx(entered / all));
  CHECK(value_of(served("{name: snapkv, budget: 1024}"), "serving.prefix_hit_share") == Approx(kept / all));
  CHECK(value_of(served("{name: snapkv, budget: 1024}", "{reuse: none}"), "serving.prefix_hit_share") == 0);
  CHECK(value_of(served("{name: rocketkv, budget: 1024}"), "serving.prefix_hit_share") == 0);
  // FreeKV's copies in host memory are loaded for the prompt that comes next.
  const result::Result offloads = served("{name: freekv, budget: 1024}");
  CHECK(value_of(offloads, "serving.prefix_hit_share") == Approx(blocks / all));
  CHECK(value_of(offloads, "serving.loaded_share") == Approx(blocks / all));
}

TEST_CASE("a model with sliding layers finds what other models do where there is memory") {
  const double all = 2 * (8192.0 + 9209 + 10226);
  const std::string model = "model: gpt-oss-20b\nhardware: h100-sxm\n";
  const auto hits = [&](const std::string& framework, const std::string& scheduler) {
    return value_of(served("full", scheduler, model + "framework: " + framework + "\n"), "serving.prefix_hit_share");
  };
  const double entered = 2 * (8192.0 + (9209 + 16) / 16 * 16) / all;
  CHECK(hits("vllm", "{sliding_cache: window}") == Approx(entered));
  CHECK(hits("vllm", "{sliding_cache: all}") == Approx(entered));
  CHECK(hits("sglang", "{}") == Approx(2 * (8192.0 + 16 + 9209 + 16) / all));  // in single tokens
}

TEST_CASE("turns that find what was kept have their first token sooner") {
  const std::string snapkv = "{name: snapkv, budget: 1024}";
  const double alone = value_of(served(snapkv, "{reuse: none}"), "serving.ttft_s.p50");
  const double kept = value_of(served(snapkv), "serving.ttft_s.p50");
  // 1000 of some 9000 tokens are read, with attention to 2000 instead of 9000.
  CHECK(kept < 0.3 * alone);
  CHECK(kept > 0.05 * alone);
}

TEST_CASE("host memory holds what the GPU has no room for") {
  // 700 blocks of 16 tokens: one session, but not both.
  const std::string small = "memory_utilization: 0.0655";
  const auto interleaved = [&](const std::string& more) {
    std::string text = kDense + kSessions;
    const std::string arrivals = "rate: 0.01, process: constant";
    text.replace(text.find(arrivals), arrivals.size(), "rate: all");
    text += "policy: full\nscheduler: {" + small + more + ", max_num_seqs: 1}\n";
    return run_all({{config::parse_yaml(text, "test"), {}, {}}}, {}).front();
  };
  const result::Result none = interleaved(""), host = interleaved(", host_cache: 10 GB");
  INFO(value_of(none, "serving.kv_capacity_tokens"));
  CHECK(value_of(none, "serving.kv_capacity_tokens") > 10'243);
  CHECK(value_of(none, "serving.kv_capacity_tokens") < 2 * 8192);
  CHECK(value_of(host, "serving.prefix_hit_share") > value_of(none, "serving.prefix_hit_share") + 0.2);
  CHECK(value_of(host, "serving.loaded_share") > 0.2);
  CHECK(value_of(host, "serving.duration_s") < value_of(none, "serving.duration_s"));
  CHECK(value_of(host, "serving.link_busy_share") > 0);
  CHECK(value_of(none, "serving.loaded_share") == 0);
}

TEST_CASE("prompts that are read apart find earlier prompts in host memory, and no answers") {
  // Turns of 8192, 9209 and 10226 tokens: the second finds 512 blocks of the first's prompt, the third 575 of the
  // second's; answers were decoded elsewhere.
  const double all = 2 * (8192.0 + 9209 + 10226);
  const std::string apart = kDense + "deployment: {replicas: 1, prefill_replicas: 1}\n";
  const result::Result host = served("full", "{host_cache: 10 GB, prefix_caching: false}", apart);
  CHECK(value_of(host, "serving.loaded_share") == Approx(2 * (512 + 575) * 16 / all));
  CHECK(value_of(host, "serving.ttft_s.p50") <
        0.7 * value_of(served("full", "{prefix_caching: false}", apart), "serving.ttft_s.p50"));
}

TEST_CASE("every policy states what can be used again, and why") {
  for (const policy::Descriptor& d : policy::all_policies()) {
    INFO(d.name);
    CHECK_FALSE(d.reuse().reason.empty());
    if (d.uncompressed()) CHECK(d.reuse().reuse == config::SchedulerRules::Reuse::kRadix);
    if (d.category == policy::Category::kDrop) CHECK(d.reuse().reuse == config::SchedulerRules::Reuse::kChain);
  }
}

TEST_CASE("caches behind the GPU need the one before them and their rates") {
  const auto refusal = [](const std::string& scheduler) {
    try {
      config::read_run(config::parse_yaml(kDense + kSessions + "policy: full\nscheduler: " + scheduler + "\n", "test"));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  using Catch::Matchers::Contains;
  CHECK(refusal("{host_cache: 10 GB, storage_cache: 1 TB, storage_read: 6 GB/s, storage_write: 3 GB/s}") == "none");
  CHECK_THAT(refusal("{storage_cache: 1 TB, storage_read: 6 GB/s, storage_write: 3 GB/s}"),
             Contains("behind host_cache"));
  CHECK_THAT(refusal("{host_cache: 10 GB, storage_cache: 1 TB}"), Contains("storage_read"));
  CHECK_THAT(refusal("{host_cache: 10 GB, remote_cache: 1 TB}"), Contains("remote_rate"));
  CHECK_THAT(refusal("{host_cache: 10 GB, storage_read: 6 GB/s}"), Contains("storage_cache, which is 0"));
  CHECK_THAT(refusal("{cache_writes: back}"), Contains("host_cache, which is 0"));
  CHECK_THAT(refusal("{host_cache: 10 GB, shared_copies: true}"), Contains("latent"));
  CHECK_THAT(refusal("{blocking_copies: true}"), Contains("host_cache, which is 0"));
  CHECK_THAT(refusal("{host_cache: 10 GB, blocking_copies: true, cache_writes: back}"), Contains("cache_writes: back"));
  CHECK(refusal("{host_cache: 10 GB, prefix_caching: false}") == "none");
  CHECK_THAT(refusal("{kind: sglang, host_cache: 10 GB, prefix_caching: false}"), Contains("a part of SGLang's"));
  CHECK_THAT(refusal("{host_cache: 10 GB, prefix_caching: false, cache_writes: back}"), Contains("cache_writes: back"));
  CHECK_THAT(refusal("{reuse: some}"), Contains("radix, chain"));
}

}  // namespace kvcast::tests
