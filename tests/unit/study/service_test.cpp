// Runs with traffic: lengths, rules, memory, and results that a static batch and arithmetic give as well.
#include "study/service.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "lower/dense.hpp"
#include "policies/all.hpp"
#include "result/metric.hpp"
#include "study/study.hpp"
#include "value_of.hpp"

namespace kvcast::tests {

using namespace study;

namespace {

result::Result result_of(const std::string& text) {
  StudyOptions options;
  std::vector<result::Result> results = run_all({{config::parse_yaml(text, "test"), {}, {}}}, options);
  return results.front();
}

const std::string kSmall = "model: llama-3.2-1b\nhardware: l40s\ntrace: {recipe: needle, layers: 1, steps: 4}\n";

std::string service(const std::string& policy, const std::string& traffic, const std::string& more = "") {
  return kSmall + fmt::format("policy: {}\ntraffic: {{{}}}\n", policy, traffic) + more;
}

config::Run run_of(const std::string& text) { return config::read_run(config::parse_yaml(text, "test")); }

TEST_CASE("lengths of requests are read once, and those beyond the model's context are left out") {
  const config::Run run = run_of(service("full", "rate: 1, requests: 300, prompt_tokens: {low: 100, high: 900}"));
  const RequestLengths all = request_lengths(*run.traffic, 100'000);
  CHECK(all.requests == 300);
  CHECK((all.shortest >= 100 && all.longest <= 900 && all.shortest < all.longest));
  CHECK(all.mean_prompt == Approx(500).margin(50));  // standard error 800 / sqrt(12 · 300) = 13
  CHECK(all.most_outputs == 256);
  const RequestLengths short_ones = request_lengths(*run.traffic, 256 + 500);
  CHECK(short_ones.requests < 200);
  CHECK(short_ones.longest <= 500);
  CHECK_THROWS_AS(request_lengths(*run.traffic, 256 + 99), UserError);
}

TEST_CASE("lengths of the further draws are known before any is served") {
  config::Run run = run_of(service("full", "rate: 1, requests: 20, prompt_tokens: {mean: 400, cv: 0.7}, seed: 3"));
  const RequestLengths all = request_lengths(*run.traffic, 100'000);
  std::int64_t shortest = all.shortest, longest = all.longest;
  for (int i = 1; i <= 4; ++i) {
    run.traffic->seed = 3 + static_cast<std::uint64_t>(i) * 1'000'003;
    const RequestLengths other = request_lengths(*run.traffic, 100'000);
    shortest = std::min(shortest, other.shortest), longest = std::max(longest, other.longest);
  }
  CHECK(all.shortest_drawn == shortest);
  CHECK(all.longest_drawn == longest);
  CHECK((shortest < all.shortest || longest > all.longest));
  // Budgets between the lengths of different draws.
  for (const int budget : {256, 512, 768}) {
    for (const int seed : {1, 2, 3, 4}) {
      const std::string policy = fmt::format("{{name: quest, budget: {}}}", budget);
      const std::string traffic = "rate: 2, requests: 2, prompt_tokens: {mean: 500, cv: 0.7}, output_tokens: 100";
      CHECK(result_of(service(policy, fmt::format("{}, seed: {}", traffic, seed))).status == result::Status::kOk);
    }
  }
}

TEST_CASE("a framework's release states the scheduler, and a run changes single rules") {
  const std::string traffic = "traffic: {rate: 1}\n", model = "model: llama-3.1-8b\npolicy: full\n";
  const auto rules = [&](const std::string& rest) { return service_rules(run_of(model + traffic + rest)); };
  const serving::Rules newest = rules("hardware: h100-sxm\nframework: vllm\n");
  CHECK(newest.engine == serving::Engine::kVllmV1);
  CHECK((newest.full_prompt_gate && newest.in_flight == 2 && newest.prefix_caching));
  CHECK((newest.max_num_seqs == 1024 && newest.max_num_batched_tokens == 8192));
  CHECK_FALSE(rules("hardware: h100-sxm\nframework: vllm-0.16\n").full_prompt_gate);
  CHECK(rules("hardware: rtx-4090\nframework: vllm\n").max_num_seqs == 256);
  const serving::Rules older = rules("hardware: rtx-4090\nframework: vllm-0.10\nscheduler: {max_num_seqs: 32}\n");
  CHECK((older.in_flight == 1 && older.max_num_seqs == 32 && older.max_num_batched_tokens == 2048));
  CHECK(rules("hardware: h100-sxm\nframework: sglang\n").engine == serving::Engine::kSglang);
  CHECK(rules("hardware: h100-sxm\nframework: trtllm\n").block == 32);
  CHECK_THROWS_AS(rules("hardware: h100-sxm\nframework: trtllm\nscheduler: {watermark: 0.1}\n"), UserError);
  const std::string v0 = "hardware: h100-sxm\nframework: vllm-0.6\n";
  CHECK(rules(v0).engine == serving::Engine::kVllmV0);
  CHECK_THROWS_AS(rules(v0 + "scheduler: {full_prompt_gate: true}\n"), UserError);
  // Layers with a window that give tokens back: chunks in units of 256 tokens.
  const std::string windows = "model: gpt-oss-20b\npolicy: full\nhardware: h100-sxm\nframework: trtllm\n" + traffic;
  CHECK(service_rules(run_of(windows)).trtllm.chunk_unit == 0);
  CHECK(service_rules(run_of(windows + "scheduler: {sliding_cache: window}\n")).trtllm.chunk_unit == 256);
  CHECK_THROWS_AS(run_of(model + "hardware: l40s\nworkload: {batch: 2}\n" + traffic), UserError);
  CHECK_THROWS_AS(run_of(model + "hardware: l40s\nscheduler: {block: 16}\n"), UserError);
}

TEST_CASE("prompts are read as the policy needs it, unless the run says otherwise") {
  const auto prompts = [](const std::string& policy, const std::string& rest) {
    return service_rules(
               run_of("model: llama-3.1-8b\nhardware: h100-sxm\ntraffic: {rate: 1}\npolicy: " + policy + rest))
        .prompts;
  };
  CHECK(prompts("full", "") == serving::Prompts::kChunked);
  CHECK(prompts("snapkv", "") == serving::Prompts::kChunked);
  CHECK(prompts("rocketkv", "\nframework: trtllm") == serving::Prompts::kWhole);
  CHECK(prompts("pyramidkv", "\nframework: vllm") == serving::Prompts::kAlone);
  CHECK(prompts("rocketkv", "\nscheduler: {prefill: chunked}") == serving::Prompts::kChunked);
  CHECK(prompts("full", "\nscheduler: {prefill: alone}") == serving::Prompts::kAlone);
  for (const policy::Descriptor& d : policy::all_policies())
    CHECK((d.prefill == serving::Prompts::kChunked) == d.prefill_source.empty());
}

TEST_CASE("the pool is the one that vLLM reports, and policies hold what they keep") {
  // LLMServingSim, bench/examples: 2588 blocks of 16 tokens on an RTX 4090.
  const config::Run run =
      run_of("model: llama-3.1-8b\nhardware: rtx-4090\nframework: vllm\npolicy: full\ntraffic: {rate: 1}\n");
  const Prepared full = prepare(run.source);
  const auto keeps_all = make_policy(full);
  const ServiceMemory memory = service_memory(full.run, *keeps_all, service_rules(full.run), 0);
  CHECK(static_cast<double>(memory.blocks) == Approx(2588).epsilon(0.02));
  CHECK((memory.low < memory.blocks && memory.blocks < memory.high));
  // 0.5 GB of CUDA graphs are 238 blocks of 2 MiB; a sampler that takes nothing leaves the pass of 2048 tokens.
  const auto blocks_with = [&](const char* key, const char* value) {
    const Prepared changed =
        prepare(run.source.with(std::string("framework.") + key, config::parse_yaml(value, "test")));
    return service_memory(changed.run, *keeps_all, service_rules(changed.run), 0).blocks;
  };
  CHECK(memory.blocks - blocks_with("graph_pool", "0.5 GB") == Approx(0.5e9 / (1 << 21)).margin(1));
  CHECK(blocks_with("sampler_bytes", "1 B") > memory.blocks + 400);
  const Prepared later = prepare(run.source.with("framework", config::parse_yaml("vllm-0.21", "test")));
  CHECK(service_memory(later.run, *keeps_all, service_rules(later.run), 0).blocks ==
        blocks_with("graph_pool", "0.5 GB"));
  CHECK(memory.footprint->keeps_all());
  CHECK(memory.footprint->reading(1000) == 63);  // 62.5 blocks
  const Prepared evicts =
      prepare(run.source.with("policy", config::parse_yaml("{name: snapkv, budget: 2048}", "test")));
  const auto drops = make_policy(evicts);
  const ServiceMemory small = service_memory(evicts.run, *drops, service_rules(evicts.run), 0);
  CHECK_FALSE(small.footprint->keeps_all());
  CHECK(small.footprint->reading(8192) == 512);         // the whole prompt
  CHECK(small.footprint->decoding(8192, 8192) == 128);  // 2048 tokens
  CHECK(small.footprint->decoding(8192, 8192 + 160) == 138);
  CHECK(small.footprint->decoding(1024, 1024) == 64);  // the budget covers it
  const Prepared in_blocks =
      prepare(run.source.with("policy", config::parse_yaml("{name: keydiff, budget: 2048, block: 512}", "test")));
  const auto evicts_early = make_policy(in_blocks);
  const ServiceMemory held = service_memory(in_blocks.run, *evicts_early, service_rules(in_blocks.run), 0);
  CHECK(held.footprint->reading(1024) == 64);
  CHECK(held.footprint->reading(60000) == (2048 + 512) / 16);  // what earlier blocks left, and a block
}

TEST_CASE("a batch under an engine has the pool of its service") {
  const std::string machine =
      "model: llama-3.1-8b\nhardware: rtx-4090\npolicy: full\nscore: none\n"
      "trace: {recipe: needle, layers: 1, steps: 4}\n";
  const auto batch = [&](const std::string& framework, int sequences) {
    return machine + fmt::format("framework: {}\nworkload: {{prompt_tokens: 4096, decode_tokens: 64, batch: {}}}\n",
                                 framework, sequences);
  };
  // 2588 blocks of 16 tokens of 128 KiB, as its service has: nine sequences of 4160 tokens are 2340 of them, ten 2600.
  const config::Gpu gpu = prepare(config::parse_yaml(batch("vllm", 1), "test")).run.hardware.gpu;
  const config::Model model = run_of(batch("vllm", 1)).model;
  const double pool =
      gpu.hbm_capacity - gpu.hbm_reserved - model.gpu_weight_bytes() - lower::activation_bytes(model, 2048, 0);
  CHECK(pool == Approx(2588.0 * (1 << 21)).epsilon(0.02));
  CHECK(gpu.hbm_reserved.uncertainty > 0);
  CHECK(result_of(batch("vllm", 9)).status == result::Status::kOk);
  CHECK(result_of(batch("vllm", 11)).status == result::Status::kOom);
  CHECK(result_of(batch("{name: vllm, scheduler: {memory_utilization: 0.99}}", 11)).status == result::Status::kOk);
  CHECK_FALSE(engine_reserved(run_of(batch("gpt-fast", 1))));
}

TEST_CASE("layers with a window have blocks of their own, or keep all tokens") {
  const auto memory = [](const std::string& text, serving::Rules& rules) {
    const Prepared made = prepare(config::parse_yaml(
        text + "hardware: h200\npolicy: full\ntraffic: {rate: 1}\ntrace: {recipe: needle}\n", "test"));
    const auto policy = make_policy(made);
    rules = service_rules(made.run);
    return service_memory(made.run, *policy, rules, 0);
  };
  serving::Rules rules;
  // Half of 24 layers; 8 heads of 64 numbers, keys and values of 2 bytes: 2048 bytes a token.
  const ServiceMemory half = memory("model: gpt-oss-20b\nframework: vllm\n", rules);
  CHECK(half.windows.groups == 1);
  CHECK(half.windows.others == 1);
  CHECK(half.windows.tokens == 128);
  CHECK(half.block_bytes == 16 * 12 * 2048.0);
  CHECK(half.footprint->keeps_all());
  // 10 of 62 layers keep all tokens, and the 52 others are five groups of ten and one of two.
  const ServiceMemory sixth = memory("model: gemma-3-27b\nframework: vllm\n", rules);
  CHECK(sixth.windows.groups == 6);
  CHECK(sixth.windows.others == 1);
  // SGLang and a vLLM that copies its cache elsewhere keep all tokens in all layers.
  for (const char* engine : {"framework: sglang\n", "framework: vllm\nscheduler: {host_cache: 100 GB}\n"}) {
    const ServiceMemory all = memory(std::string("model: gpt-oss-20b\n") + engine, rules);
    CHECK(all.windows.groups == 0);
    CHECK(all.block_bytes == static_cast<double>(rules.block) * 24 * 2048);
    CHECK(all.footprint->keeps_all());
  }
  CHECK_THROWS_WITH(
      memory("model: gpt-oss-20b\nframework: vllm\nscheduler: {host_cache: 100 GB, sliding_cache: window}\n", rules),
      Catch::Contains("sliding_cache"));
}

TEST_CASE("a request of a model with a recurrence holds its states, and goes on from its end only") {
  // 48 layers of 48 · 128 · 128 numbers in single precision and three inputs of 10240 channels; 16 layers of 4 heads of
  // 256 attend: 65536 bytes a token.
  const Prepared hybrid = prepare(
      config::parse_yaml("model: qwen3.5-27b\nhardware: h200\nframework: vllm\npolicy: full\ntraffic: {rate: 1}\n"
                         "trace: {recipe: needle}\n",
                         "test"));
  const auto policy = make_policy(hybrid);
  const serving::Rules rules = service_rules(hybrid.run);
  const ServiceMemory memory = service_memory(hybrid.run, *policy, rules, 0);
  const double states = 48 * (48.0 * 128 * 128 * 4 + 3 * 10240 * 2), block = 16 * 65536;
  CHECK(memory.footprint->reading(1600) == std::ceil((states + 1600 * 65536.0) / block));
  CHECK(memory.footprint->decoding(1600, 1760) == std::ceil((states + 1760 * 65536.0) / block));
  CHECK_FALSE(memory.footprint->keeps_all());
  CHECK(rules.reuse == config::SchedulerRules::Reuse::kChain);
}

TEST_CASE("a static batch of requests that are there at once takes the times of the same workload") {
  const result::Result batch =
      result_of(kSmall + "policy: full\nworkload: {prompt_tokens: 3000, decode_tokens: 64, batch: 4}\n");
  const result::Result served =
      result_of(service("full", "rate: all, requests: 4, prompt_tokens: 3000, output_tokens: 64",
                        "scheduler: {kind: static, max_num_seqs: 4}\n"));
  CHECK(value_of(served, "serving.ttft_s.p99") == Approx(value_of(batch, "prefill.ttft_s")).epsilon(0.02));
  CHECK(value_of(served, "serving.tpot_s.p50") == Approx(value_of(batch, "decode.tpot_s.mean")).epsilon(0.005));
  CHECK(value_of(served, "serving.e2e_s.mean") == Approx(value_of(batch, "request.latency_s")).epsilon(0.01));
}

TEST_CASE("prompts too short for a text are served by what a longer one shows") {
  for (const char* policy : {"full", "{name: snapkv, budget: 128}"}) {
    const result::Result r =
        result_of(service(policy, "rate: 5, requests: 30, prompt_tokens: {low: 20, high: 90}, output_tokens: 8"));
    CHECK(value_of(r, "serving.completed") == 30);
  }
}

TEST_CASE("all policies are reported with the mean prompt of the requests, whatever was replayed for them") {
  for (const char* policy : {"full", "{name: snapkv, budget: 128}"}) {
    const result::Result r =
        result_of(service(policy, "rate: 5, requests: 30, prompt_tokens: {low: 800, high: 1900}, output_tokens: 8"));
    REQUIRE(value_of(r, "serving.completed") == 30);
    const double prompts = value_of(r, "serving.total_tokens_per_s") - value_of(r, "serving.output_tokens_per_s");
    CHECK(r.subject.prompt_tokens == std::llround(prompts / value_of(r, "serving.requests_per_s")));
  }
}

TEST_CASE("HTTP and tokenising delay a request, and others where they take turns") {
  const std::string calm = "rate: 1, process: constant, requests: 20, prompt_tokens: 1000, output_tokens: 10";
  const result::Result plain = result_of(service("full", calm, "framework: vllm\n"));
  CHECK(value_of(plain, "serving.ttft_parts.front_end_s.mean") == 0);
  const result::Result slower =
      result_of(service("full", calm, "framework: {name: vllm, front_end_request: 100 ms, client_time: 50 ms}\n"));
  // Requests come alone, so that nothing else changes.
  for (const char* time : {"serving.ttft_s.mean", "serving.e2e_s.mean"})
    CHECK(value_of(slower, time) - value_of(plain, time) == Approx(0.15).epsilon(1e-6));
  CHECK(value_of(slower, "serving.ttft_parts.front_end_s.p99") == Approx(0.15).epsilon(1e-3));
  CHECK(value_of(slower, "serving.tpot_s.mean") == Approx(value_of(plain, "serving.tpot_s.mean")));
  CHECK(value_of(slower, "serving.queue_s.mean") == Approx(value_of(plain, "serving.queue_s.mean")).margin(1e-9));
  // All at once, the i-th is through after i seconds: 10.5 s in the mean of 20.
  const result::Result all =
      result_of(service("full", "rate: all, requests: 20, prompt_tokens: 1000, output_tokens: 10",
                        "framework: {name: vllm, front_end_request: 1 s}\n"));
  CHECK(value_of(all, "serving.ttft_parts.front_end_s.mean") == Approx(10.5));
  CHECK(value_of(all, "serving.ttft_s.mean") == Approx(10.5 + value_of(plain, "serving.ttft_s.mean")).epsilon(1e-6));
  double parts = 0;
  for (const serving::TtftPart& part : serving::kTtftParts)
    parts += value_of(all, fmt::format("serving.ttft_parts.{}_s.p99", part.name).c_str());
  CHECK(parts == Approx(value_of(all, "serving.ttft_s.p99")));
}

TEST_CASE("a service tells whether its queue grows, and how far its numbers can be trusted") {
  const std::string lengths = ", requests: 200, prompt_tokens: 2000, output_tokens: 100, slo: {ttft: 1 s, tpot: 50 ms}";
  const result::Result calm = result_of(service("full", "rate: 1" + lengths));
  REQUIRE(calm.service);
  CHECK(calm.service->summary.state == serving::Trend::kStable);
  CHECK(value_of(calm, "serving.slo_share") == 1);
  CHECK(value_of(calm, "serving.completed") == 200);
  // Alone, a request is read in one pass; its tokens wait for the chunks of at most a few others.
  const result::Result alone =
      result_of(kSmall + "policy: full\nworkload: {prompt_tokens: 2000, decode_tokens: 100}\n");
  CHECK(value_of(calm, "serving.ttft_s.p50") == Approx(value_of(alone, "prefill.ttft_s")).epsilon(0.15));
  CHECK(value_of(calm, "serving.tpot_s.p50") >= 0.98 * value_of(alone, "decode.tpot_s.mean"));
  const result::Result busy = result_of(service("full", "rate: 100" + lengths));
  CHECK(busy.service->summary.state == serving::Trend::kSaturated);
  CHECK(value_of(busy, "serving.slo_share") < 0.5);
  CHECK(value_of(busy, "serving.requests_per_s") < 100);
  // Little's law: requests in the service are the rate times their time in it.
  CHECK(value_of(busy, "serving.running.mean") + value_of(busy, "serving.waiting.mean") ==
        Approx(value_of(busy, "serving.requests_per_s") * value_of(busy, "serving.e2e_s.mean")).epsilon(0.03));
  for (const result::Metric& metric : result::all_metrics()) {
    if (metric.basis != result::Basis::kServing) continue;
    const auto value = result::value(busy, metric);
    const auto range = result::interval(busy, metric);
    if (!value || !range) continue;
    INFO(metric.path);
    CHECK((range->low <= *value && *value <= range->high));
    if (metric.unit == result::Unit::kSeconds && *value > 0) CHECK(range->low > 0);
  }
  CHECK(busy.service->sampling_error > 0);
  CHECK_FALSE(result::value(busy, *result::find_metric("request.latency_s")));
}

TEST_CASE("a policy that evicts serves more requests than its memory allows full KV") {
  const std::string traffic = "rate: all, requests: 64, prompt_tokens: 8000, output_tokens: 200";
  const std::string tight = "scheduler: {memory_utilization: 30 %}\nframework: vllm\n";
  const result::Result full = result_of(service("full", traffic, tight));
  const result::Result few = result_of(service("{name: snapkv, budget: 512}", traffic, tight));
  CHECK(value_of(few, "serving.running.max") > 1.2 * value_of(full, "serving.running.max"));
  CHECK(value_of(few, "serving.duration_s") < value_of(full, "serving.duration_s"));
}

TEST_CASE("a service that can serve no request has no times") {
  const result::Result none = result_of(service("full", "rate: 1, requests: 3, prompt_tokens: 120000, output_tokens: 8",
                                                "scheduler: {memory_utilization: 10 %}\nframework: vllm\n"));
  REQUIRE(none.service);
  CHECK(value_of(none, "serving.rejected") == 3);
  CHECK_FALSE(result::value(none, *result::find_metric("serving.ttft_s.mean")));
}

}  // namespace
}  // namespace kvcast::tests
