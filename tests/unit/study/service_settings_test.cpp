// The keys of traffic and of its scheduler among the settings of a result.
#include <catch2/catch.hpp>

#include "study/prepare.hpp"

namespace kvcast::tests {
namespace {

result::Subject subject_with(const std::string& more) {
  return study::subject_of(study::prepare(config::parse_yaml(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: full\ntrace: {recipe: needle, layers: 1, steps: 4}\n" +
          more,
      "run.yaml")));
}

TEST_CASE("settings of a service have every key of its traffic that has an effect, with defaults") {
  const result::Subject s = subject_with(
      "traffic: {rate: 2.5, requests: 20, prompt_tokens: 512, output_tokens: {low: 8, high: 24}, "
      "slo: {ttft: 2 s, tpot: 50 ms}}\n");
  CHECK(s.number("traffic.rate") == 2.5);
  CHECK(s.text("traffic.process") == "poisson");
  CHECK(s.number("traffic.requests") == 20);
  CHECK(s.number("traffic.prompt_tokens") == 512);
  CHECK(s.number("traffic.output_tokens.low") == 8);
  CHECK(s.number("traffic.output_tokens.high") == 24);
  CHECK(s.number("traffic.seed") == 1);
  CHECK(s.number("traffic.slo.ttft") == 2);
  CHECK(s.number("traffic.slo.tpot") == 0.05);
  for (const char* absent : {"traffic.slo.e2e", "traffic.cv", "traffic.concurrency", "traffic.think_time",
                             "traffic.shared_prefix.tokens", "traffic.sessions.turns", "traffic.output_tokens"}) {
    INFO(absent);
    CHECK(s.find(absent) == nullptr);
  }
}

TEST_CASE("settings say how requests arrive otherwise") {
  const auto with = [](const std::string& arrivals) {
    return subject_with("traffic: {" + arrivals + ", requests: 20, prompt_tokens: 512, output_tokens: 8}\n");
  };
  CHECK(with("rate: all").text("traffic.rate") == "all");
  CHECK(with("rate: all").find("traffic.process") == nullptr);
  CHECK(with("concurrency: 4, think_time: 2 s").number("traffic.concurrency") == 4);
  CHECK(with("concurrency: 4, think_time: 2 s").number("traffic.think_time") == 2);
  CHECK(with("rate: 3, process: gamma, cv: 1.5").number("traffic.cv") == 1.5);
  const result::Subject turns = with("rate: 3, sessions: {turns: 4, turn_tokens: 100, think_time: 10 s}");
  CHECK(turns.number("traffic.sessions.turns") == 4);
  CHECK(turns.number("traffic.sessions.think_time") == 10);
}

TEST_CASE("settings have every rule of the scheduler's kind, as written or by default, and no other's") {
  const auto with = [](const std::string& rules, const std::string& more = "") {
    return subject_with("traffic: {rate: 1, requests: 20, prompt_tokens: 512, output_tokens: 8}\nscheduler: {" + rules +
                        "}\n" + more);
  };
  const result::Subject vllm = with("kind: vllm-v1, max_num_seqs: 64, max_num_batched_tokens: 4096");
  CHECK(vllm.text("scheduler.kind") == "vllm-v1");
  CHECK(vllm.number("scheduler.max_num_seqs") == 64);
  CHECK(vllm.number("scheduler.max_num_batched_tokens") == 4096);
  CHECK(vllm.number("scheduler.block") == 16);
  CHECK(vllm.number("scheduler.memory_utilization") == 0.9);
  CHECK(vllm.text("scheduler.prefix_caching") == "true");
  CHECK(vllm.number("scheduler.host_cache") == 0);
  CHECK(vllm.text("scheduler.prefill") == "chunked");
  CHECK(vllm.number("scheduler.watermark") == 0);
  CHECK(vllm.find("scheduler.new_token_ratio") == nullptr);
  const result::Subject sglang = with("kind: sglang, order: lpm");
  CHECK(sglang.text("scheduler.order") == "lpm");
  CHECK(sglang.number("scheduler.new_token_ratio") == 0.7);
  CHECK(sglang.find("scheduler.watermark") == nullptr);
  // 40 GiB: 9.5 GiB and half a GiB a GPU are left out, in steps of a thousandth.
  const double all = sglang.number("scheduler.memory_utilization").value();
  CHECK(all == Approx(0.75).margin(0.02));
  // And 2 more with n-grams.
  const double gib = 10 / (1 - all);
  const auto drafted = with("kind: sglang", "speculation: {kind: ngram, tokens: 3, length: 2}\n");
  CHECK(all - drafted.number("scheduler.memory_utilization").value() == Approx(2 / gib).epsilon(0.1));
}

TEST_CASE("a batch has no settings of a service") {
  const result::Subject s = subject_with("workload: {prompt_tokens: 512, decode_tokens: 8}\n");
  for (const result::Setting& setting : s.settings) {
    INFO(setting.key);
    CHECK(!setting.key.starts_with("traffic."));
    CHECK(!setting.key.starts_with("scheduler."));
  }
}

}  // namespace
}  // namespace kvcast::tests
