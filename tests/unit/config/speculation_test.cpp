// Reading `speculation:`: expected tokens of a pass by closed forms, drafts by their shape, refusals with their place.
#include <catch2/catch.hpp>

#include "config/run.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

Run run_drafting(const std::string& speculation, const std::string& model = "qwen3-8b", const std::string& more = "") {
  return read_run(parse_yaml("model: " + model + "\nhardware: h100-sxm\npolicy: full\nframework: vllm\n" + more +
                                 "speculation: " + speculation + "\n",
                             "test"));
}

double tokens_a_pass(const std::string& rest) {
  return run_drafting("{kind: ngram, " + rest + "}").speculation->tokens_per_pass;
}

std::string speculation_refusal(const std::string& speculation, const std::string& more = "") {
  return error_of([&] { run_drafting(speculation, "qwen3-8b", more); });
}

TEST_CASE("expected tokens of a pass follow from acceptance") {
  // 1 + a + a² + a³; each factor of a list once, the last one for all that follow.
  CHECK(tokens_a_pass("tokens: 3, acceptance: 0.7") == Approx(1 + 0.7 + 0.49 + 0.343));
  CHECK(tokens_a_pass("tokens: 3, acceptance: 70 %") == Approx(2.533));
  CHECK(tokens_a_pass("tokens: 3, acceptance: [0.9, 0.5]") == Approx(1 + 0.9 + 0.45 + 0.225));
  CHECK(tokens_a_pass("tokens: 1, acceptance: [0.9, 0.5]") == Approx(1.9));
  CHECK(tokens_a_pass("tokens: 5, acceptance: 0") == 1);
  CHECK(tokens_a_pass("tokens: 5, acceptance: 1") == 6);
  // (1 − a^(k+1)) / (1 − a).
  CHECK(tokens_a_pass("tokens: 8, acceptance: 0.8") == Approx((1 - std::pow(0.8, 9)) / 0.2));
}

TEST_CASE("a published length replaces acceptance, alone or by the number of drafted tokens") {
  CHECK(tokens_a_pass("tokens: 3, length: 3.39") == 3.39);
  CHECK(tokens_a_pass("tokens: 2, length: [1.93, 2.73, 3.39]") == 2.73);
  CHECK(speculation_refusal("{kind: ngram, tokens: 4, length: [1.93, 2.73, 3.39]}") ==
        "test:5:47: length: 3 values, but 4 tokens are drafted");
  CHECK(speculation_refusal("{kind: ngram, tokens: 2, length: 3.5}") ==
        "test:5:47: length: 3.5 tokens a pass, but it verifies 3");
  CHECK(
      speculation_refusal("{kind: ngram, tokens: 2, length: 2, acceptance: 0.5}").find("either acceptance or length") !=
      std::string::npos);
  CHECK(speculation_refusal("{kind: ngram, tokens: 2}") == "test:5:14: speculation: give acceptance, or length");
}

TEST_CASE("what is not known or contradicts itself is refused") {
  CHECK(speculation_refusal("{kind: medusa, tokens: 2, acceptance: 0.5}").find("known: ngram, draft, mtp, eagle") !=
        std::string::npos);
  CHECK(speculation_refusal("{kind: mtp, tokens: 0, acceptance: 0.5}").find("tokens") != std::string::npos);
  CHECK(speculation_refusal("{kind: mtp, tokens: 2, acceptance: 1.5}").find("acceptance") != std::string::npos);
  CHECK(speculation_refusal("{kind: mtp, tokens: 2, acceptance: []}").find("acceptance: the list is empty") !=
        std::string::npos);
  CHECK(speculation_refusal("{kind: mtp, tokens: 2, acceptance: 0.5, model: qwen3-0.6b}").find("model") !=
        std::string::npos);
  CHECK(speculation_refusal("{kind: draft, tokens: 2, acceptance: 0.5}").find("\"model\" is missing") !=
        std::string::npos);
  CHECK(speculation_refusal("{kind: mtp, tokens: 2, acceptance: 0.5}", "deployment: {pipeline_parallel: 2}\n")
            .find("not with deployment.pipeline_parallel") != std::string::npos);
  // 14 query heads cannot be split over 4 GPUs.
  CHECK(speculation_refusal("{kind: draft, tokens: 2, acceptance: 0.5, model: qwen2.5-0.5b}",
                            "deployment: {tensor_parallel: 4}\n")
            .find("cannot be split over 4 GPUs") != std::string::npos);
  CHECK(speculation_refusal("{kind: draft, tokens: 2, acceptance: 0.5, model: llama-2-13b}",
                            "workload: {prompt_tokens: 40000, decode_tokens: 10}\n")
            .find("40010 tokens are above the 4096") != std::string::npos);
}

TEST_CASE("a draft is a model of its own, or one layer of the model's width") {
  const Speculation small = *run_drafting("{kind: draft, tokens: 4, acceptance: 0.6, model: qwen3-0.6b}").speculation;
  CHECK(small.draft->layers == 28);
  CHECK(draft_weight_bytes(small, draft_rank(small, {})) == small.draft->weight_bytes());
  const Speculation mtp = *run_drafting("{kind: mtp, tokens: 1, acceptance: 0.8}", "qwen3.5-35b-a3b").speculation;
  CHECK((mtp.draft->layers == 1 && mtp.draft->full_layers() == 1 && mtp.draft->experts));
  // Qwen3-8B: one layer of its shape in 16 bits, a product of three features, two norms, and a head of its own.
  const Speculation eagle = *run_drafting("{kind: eagle, tokens: 3, acceptance: 0.7, vocab: 32000}").speculation;
  const double h = 4096, layer = h * (32 + 2 * 8) * 128 + h * 32 * 128 + 3 * h * 12288 + 2 * h + 2 * 128;
  CHECK(draft_weight_bytes(eagle, draft_rank(eagle, {})) == Approx(2 * (layer + 3 * h * h + 32000 * h)));
  // Experts give way to a network as wide as those of a token.
  const Speculation dense = *run_drafting("{kind: eagle, tokens: 3, acceptance: 0.7}", "qwen3-30b-a3b").speculation;
  CHECK((!dense.draft->experts && dense.draft->ffn == 8 * 768));
}

}  // namespace
}  // namespace kvcast::tests
