// Pipeline stages: prompts pass them one after another, each as soon as the first stage is free.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "result/metric.hpp"
#include "study/study.hpp"
#include "value_of.hpp"

namespace kvcast::tests {

using namespace study;

namespace {

double staged_ttft(int batch, int together) {
  const std::string text = fmt::format(
      "model: llama-3.2-1b\nhardware: l40s\ntrace: {{recipe: needle, layers: 1, steps: 4}}\npolicy: full\n"
      "framework: vllm\ndeployment: {{pipeline_parallel: 2}}\n"
      "workload: {{prompt_tokens: 4096, decode_tokens: 4, batch: {}, prefill_batch: {}}}\n",
      batch, together);
  return value_of(run_all({{config::parse_yaml(text, "test"), {}, {}}}, {}).front(), "prefill.ttft_s");
}

TEST_CASE("prompts that are read one at a time leave a stage idle for one prompt alone") {
  // Two stages: the n-th prompt ends after n + 1 halves of what one takes in both.
  const double one = staged_ttft(1, 1);
  CHECK(staged_ttft(2, 1) == Approx(1.5 * one).epsilon(0.02));
  CHECK(staged_ttft(8, 1) == Approx(4.5 * one).epsilon(0.02));
  // Four at a time pass as one: two micro-batches, of which the second ends half of one's time later.
  CHECK(staged_ttft(8, 4) > 1.2 * staged_ttft(8, 1));
}

}  // namespace
}  // namespace kvcast::tests
