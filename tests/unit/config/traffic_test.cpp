// The sections `traffic:` and `scheduler:`.
#include "config/traffic.hpp"

#include <catch2/catch.hpp>

#include "config/run.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

Traffic traffic_of(const std::string& text) { return read_traffic({parse_yaml(text, "t.yaml"), "traffic"}); }
std::string traffic_error(const std::string& text) {
  return error_of([&] { traffic_of(text); });
}
SchedulerRules scheduler_of(const std::string& text) {
  return read_scheduler({parse_yaml(text, "s.yaml"), "scheduler"});
}
std::string scheduler_error(const std::string& text) {
  return error_of([&] { scheduler_of(text); });
}

TEST_CASE("traffic is read with its defaults") {
  const Traffic t = traffic_of("rate: 2.5");
  CHECK(t.arrivals == Traffic::Arrivals::kRate);
  CHECK(t.rate == 2.5);
  CHECK(t.process == Traffic::Process::kPoisson);
  CHECK(t.cv == 1);
  CHECK(t.requests == 2000);
  CHECK(t.prompt_tokens.kind == LengthDistribution::Kind::kFixed);
  CHECK(t.prompt_tokens.mean == 8192);
  CHECK(t.output_tokens.mean == 256);
  CHECK(t.shared_prefix.tokens == 0);
  CHECK_FALSE(t.sessions);
  CHECK_FALSE(t.slo);
  CHECK(t.seed == 1);
  CHECK(t.where.line == 1);
}

TEST_CASE("every key of traffic is read") {
  const Traffic t = traffic_of(R"(rate: 2
process: gamma
cv: 2
requests: 100
prompt_tokens: {mean: 8K, cv: 0.5}
output_tokens: {low: 10, high: 20}
shared_prefix: {tokens: 1024, groups: 10, prompts: 3}
sessions: {turns: 8, turn_tokens: 500, think_time: 10 s}
seed: 7
slo: {ttft: 2 s, tpot: 50 ms, e2e: 60 s}
)");
  CHECK(t.process == Traffic::Process::kGamma);
  CHECK(t.cv == 2);
  CHECK(t.prompt_tokens.kind == LengthDistribution::Kind::kLognormal);
  CHECK(t.prompt_tokens.mean == 8192);
  CHECK(t.prompt_tokens.cv == 0.5);
  CHECK(t.output_tokens.kind == LengthDistribution::Kind::kUniform);
  CHECK(t.output_tokens.high == 20);
  CHECK(t.shared_prefix.groups == 10);
  CHECK(t.shared_prefix.prompts == 3);
  CHECK(t.sessions->turns == 8);
  CHECK(t.sessions->turn_tokens == 500);
  CHECK(t.sessions->think_time == 10);
  CHECK(t.seed == 7);
  CHECK(t.slo->tpot == Approx(0.05));
  CHECK(t.slo->e2e == 60);

  CHECK(traffic_of("rate: all").arrivals == Traffic::Arrivals::kAll);
  CHECK(traffic_of("{rate: 1, process: constant}").cv == 0);
  const Traffic closed = traffic_of("{concurrency: 32, think_time: 2 s}");
  CHECK(closed.arrivals == Traffic::Arrivals::kConcurrency);
  CHECK(closed.concurrency == 32);
  CHECK(closed.think_time == 2);
  const Traffic trace = traffic_of("{file: a.jsonl, format: mooncake, speedup: 2}");
  CHECK(trace.arrivals == Traffic::Arrivals::kTrace);
  CHECK(trace.format == Traffic::Format::kMooncake);
  CHECK(trace.speedup == 2);
  const Traffic lengths = traffic_of("{rate: 1, prompt_tokens: {file: l.csv}, output_tokens: 5}");
  CHECK(lengths.prompt_tokens.kind == LengthDistribution::Kind::kFile);
  CHECK(lengths.prompt_tokens.file == "l.csv");
}

TEST_CASE("keys of traffic that contradict each other are refused at their location") {
  using Catch::Matchers::Contains;
  CHECK_THAT(traffic_error("requests: 5"), Contains("t.yaml:1:1") && Contains("known: rate, concurrency, file"));
  CHECK_THAT(traffic_error("concurrency: 4\nrate: 1"),
             Contains("t.yaml:2:7") && Contains("either rate or concurrency"));
  CHECK_THAT(traffic_error("file: x\nrate: 1"), Contains("t.yaml:2:7"));
  CHECK_THAT(traffic_error("file: x\nconcurrency: 1"), Contains("t.yaml:2:14"));
  CHECK_THAT(traffic_error("file: x\nprompt_tokens: 9"), Contains("t.yaml:2:16") && Contains("which requests arrive"));
  CHECK_THAT(traffic_error("file: x\nsessions: {turns: 2, turn_tokens: 1}"), Contains("t.yaml:2:11"));
  CHECK_THAT(traffic_error("rate: 1\nthink_time: 2 s"), Contains("t.yaml:2:13") && Contains("sessions.think_time"));
  CHECK_THAT(traffic_error("rate: 1\ncv: 2"), Contains("t.yaml:2:5") && Contains("process: gamma"));
  CHECK_THAT(traffic_error("rate: 1\nprocess: gamma"), Contains("t.yaml:2:10") && Contains("needs cv"));
  CHECK_THAT(traffic_error("rate: all\nprocess: constant"), Contains("t.yaml:2:10"));
  CHECK_THAT(traffic_error("concurrency: 1\nprocess: constant"), Contains("t.yaml:2:10"));
  CHECK_THAT(traffic_error("rate: 1\nspeedup: 2"), Contains("t.yaml:2:10") && Contains("belongs to file"));
  CHECK_THAT(traffic_error("rate: 1\nformat: azure"), Contains("t.yaml:2:9"));
  CHECK_THAT(traffic_error("rate: 1\nslo: {}"), Contains("known: ttft, tpot, e2e"));
  CHECK_THAT(traffic_error("rate: 1\nslo: {ttft: 2}"), Contains("with a unit"));
  CHECK_THAT(traffic_error("rate: 1\nraet: 2"), Contains("unknown key"));
  CHECK_THAT(traffic_error("rate: 0"), Contains("out of range"));
  CHECK_THAT(traffic_error("rate: 0.0001"), Contains("2000 requests take more than"));
  CHECK_THAT(traffic_error("rate: some"), Contains("expected a number"));
}

TEST_CASE("lengths that say too little or too much are refused") {
  using Catch::Matchers::Contains;
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {}"), Contains("give a number, {mean, cv}, {low, high} or {file}"));
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {mean: 9}"), Contains("\"cv\" is missing"));
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {cv: 1}"), Contains("\"mean\" is missing"));
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {low: 9}"), Contains("\"high\" is missing"));
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {low: 9, high: 8}"),
             Contains("t.yaml:2:22: ") && Contains("above"));
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {mean: 9, cv: 1, file: x}"), Contains("give a number"));
  CHECK_THAT(traffic_error("rate: 1\noutput_tokens: 0"), Contains("out of range"));
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: 100\nshared_prefix: {tokens: 101}"),
             Contains("t.yaml:3:16") && Contains("may have 100"));
  CHECK(traffic_error("rate: 1\nprompt_tokens: 100\nshared_prefix: {tokens: 100}") == "no error");
  CHECK_THAT(traffic_error("rate: 1\nprompt_tokens: {low: 9, high: 99}\nshared_prefix: {tokens: 10}"),
             Contains("may have 9"));
}

TEST_CASE("a request's traffic names no files") {
  const Node node = parse_request("{file: /etc/passwd}");
  CHECK(error_of([&] { read_traffic({node, "traffic"}); }) != "no error");
}

TEST_CASE("a scheduler's rules are read, none of which has a default") {
  const SchedulerRules none = scheduler_of("{}");
  CHECK_FALSE(none.kind);
  CHECK_FALSE(none.max_num_seqs);
  CHECK_FALSE(none.prefix_caching);
  const SchedulerRules s = scheduler_of(R"(kind: vllm-v1
max_num_seqs: 256
max_num_batched_tokens: 2048
block: 16
memory_utilization: 0.9
prefix_caching: true
host_cache: 100 GB
prefill: whole
in_flight: 2
full_prompt_gate: false
long_prefill_token_threshold: 0
watermark: 1 %
)");
  CHECK(s.kind == SchedulerRules::Kind::kVllmV1);
  CHECK(s.max_num_seqs == 256);
  CHECK(s.max_num_batched_tokens == 2048);
  CHECK(s.block == 16);
  CHECK(s.memory_utilization == 0.9);
  CHECK(s.prefix_caching == true);
  CHECK(s.host_cache == 100e9);
  CHECK(s.prefill == SchedulerRules::Prefill::kWhole);
  CHECK(s.in_flight == 2);
  CHECK(s.full_prompt_gate == false);
  CHECK(s.long_prefill_token_threshold == 0);
  CHECK(s.watermark == 0.01);
  CHECK(scheduler_of("host_cache: 0").host_cache == 0.0);
  const SchedulerRules sglang = scheduler_of(
      "{kind: sglang, max_prefill_tokens: 16384, new_token_ratio: 0.7, retract_decode_steps: 20, mixed_chunk: true, "
      "order: lpm}");
  CHECK(sglang.order == SchedulerRules::Order::kLpm);
  CHECK(sglang.new_token_ratio == 0.7);
  CHECK(scheduler_of("{kind: trtllm, max_utilization: true, chunked_prefill: true}").max_utilization == true);
}

TEST_CASE("rules of other engines are refused") {
  using Catch::Matchers::Contains;
  CHECK_THAT(scheduler_error("kind: trtllm\nwatermark: 0.1"),
             Contains("s.yaml:2:12") && Contains("trtllm has no rule watermark, but vllm-v1, vllm-v0 has"));
  CHECK_THAT(scheduler_error("kind: vllm-v2"), Contains("known: vllm-v1, vllm-v0, sglang, trtllm, static"));
  CHECK_THAT(scheduler_error("host_cache: 5"), Contains("with a unit"));
  CHECK_THAT(scheduler_error("in_flight: 3"), Contains("between 1 and 2"));
  CHECK(scheduler_error("watermark: 0.1") == "no error");
  const Node node = parse_yaml("watermark: 0.1", "s.yaml");
  CHECK_THAT(error_of([&] {
               refuse_other_rules({node, "scheduler"}, SchedulerRules::Kind::kSglang);
             }),
             Contains("sglang has no rule watermark"));
  CHECK(std::string(scheduler_name(SchedulerRules::Kind::kVllmV0)) == "vllm-v0");
}

TEST_CASE("keys of traffic and scheduler have a meaning and their types") {
  const Shapes shapes = run_shapes();
  for (const char* title :
       {"traffic", "scheduler", "prompt_tokens", "output_tokens", "shared_prefix", "sessions", "slo"}) {
    REQUIRE(shapes.contains(title));
    for (const KeyShape& key : shapes.at(title)) {
      INFO(title << "." << key.key);
      CHECK_FALSE(key.about.empty());
      CHECK(key.type != KeyShape::Type::kAny);
    }
  }
  const auto type = [&](const char* title, const std::string& name) {
    for (const KeyShape& key : shapes.at(title)) {
      if (key.key == name) return key.type;
    }
    return KeyShape::Type::kAny;
  };
  CHECK(type("traffic", "rate") == KeyShape::Type::kNumber);
  CHECK(type("traffic", "concurrency") == KeyShape::Type::kInteger);
  CHECK(type("traffic", "prompt_tokens") == KeyShape::Type::kInteger);
  CHECK(type("scheduler", "max_num_seqs") == KeyShape::Type::kInteger);
  CHECK(type("scheduler", "host_cache") == KeyShape::Type::kQuantity);
}

}  // namespace

}  // namespace kvcast::tests
