// Speculation in runs and services: times are those of a pass over the tokens that it yields.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "result/metric.hpp"
#include "study/study.hpp"
#include "value_of.hpp"

namespace kvcast::tests {

using namespace study;

namespace {

const std::string kDraftedRun =
    "model: llama-3.2-1b\nhardware: l40s\ntrace: {recipe: needle, layers: 1, steps: 4}\npolicy: full\n"
    "framework: vllm\n";

double drafted_number(const std::string& text, const char* path) {
  return value_of(run_all({{config::parse_yaml(kDraftedRun + text, "test"), {}, {}}}, {}).front(), path);
}

std::string ngram(double acceptance, int tokens = 3) {
  return fmt::format("speculation: {{kind: ngram, tokens: {}, acceptance: {}}}\n", tokens, acceptance);
}

TEST_CASE("a token takes its share of a pass, whatever the acceptance, and throughput grows as much") {
  const std::string batch = "workload: {prompt_tokens: 2048, decode_tokens: 64, batch: 4}\n";
  const double none = drafted_number(batch + ngram(0), "decode.tpot_s.mean");  // a pass yields its own token
  CHECK(drafted_number(batch + ngram(1), "decode.tpot_s.mean") == Approx(none / 4));
  CHECK(drafted_number(batch + ngram(0.5), "decode.tpot_s.mean") == Approx(none / 1.875));
  CHECK(drafted_number(batch + ngram(0.5), "decode.tokens_per_s") ==
        Approx(4 / drafted_number(batch + ngram(0.5), "decode.tpot_s.mean")));
  CHECK(drafted_number(batch + ngram(1), "prefill.ttft_s") == Approx(drafted_number(batch, "prefill.ttft_s")));
  // Few rows more cost little while weights are what a step reads; rejected tokens are work for nothing.
  CHECK(none > drafted_number(batch, "decode.tpot_s.mean"));
  CHECK(drafted_number(batch + ngram(1), "decode.tpot_s.mean") < 0.5 * drafted_number(batch, "decode.tpot_s.mean"));
}

TEST_CASE("rejected tokens are free while weights are read, and cost a large batch") {
  const auto gain = [](int batch, double acceptance) {
    const std::string work = fmt::format("workload: {{prompt_tokens: 512, decode_tokens: 64, batch: {}}}\n", batch);
    return drafted_number(work, "decode.tpot_s.mean") / drafted_number(work + ngram(acceptance), "decode.tpot_s.mean");
  };
  CHECK(gain(256, 0.6) < gain(1, 0.6));
  CHECK(gain(1, 0.1) > 1);
  CHECK(gain(256, 0.1) < 1);
}

TEST_CASE("a service with one client has the times of a run") {
  const std::string more = "speculation: {kind: eagle, tokens: 3, acceptance: 0.7}\n";
  const double alone =
      drafted_number("workload: {prompt_tokens: 1000, decode_tokens: 100, batch: 1}\n" + more, "decode.tpot_s.mean");
  const std::string one = "traffic: {concurrency: 1, requests: 20, prompt_tokens: 1000, output_tokens: 100}\n" + more;
  CHECK(drafted_number(one, "serving.tpot_s.mean") == Approx(alone).epsilon(0.02));
}

TEST_CASE("a draft takes memory from the cache of a service") {
  const std::string traffic = "traffic: {concurrency: 4, requests: 20, prompt_tokens: 1000, output_tokens: 20}\n";
  const double without = drafted_number(traffic, "serving.kv_capacity_tokens");
  CHECK(drafted_number(traffic + ngram(0.5), "serving.kv_capacity_tokens") == without);
  // One layer more than 16: the same memory, less the draft's weights, holds at most 16 / 17 of the tokens.
  const double with = drafted_number(traffic + "speculation: {kind: eagle, tokens: 3, acceptance: 0.7}\n",
                                     "serving.kv_capacity_tokens");
  CHECK(with < without * 16 / 17);
  CHECK(with > without * 0.92);
}

}  // namespace
}  // namespace kvcast::tests
