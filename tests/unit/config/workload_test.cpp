// Batches of prompts of different lengths.
#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

#include "config/run.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

const std::string kMachine = "model: llama-3.1-8b\nhardware: a100-40gb-pcie4\n";  // lines 1 and 2

Run run_with(const std::string& text) { return read_run(parse_yaml(text, "run.yaml")); }

std::string refusal_of_run(const std::string& text) {
  return error_of([&] { run_with(text); });
}

TEST_CASE("prompts may differ between the sequences of a batch") {
  const auto workload = [](const std::string& text) {
    return run_with(kMachine + "policy: full\nworkload: {" + text + "}\n").workload;
  };
  const auto lengths = [](const config::Workload& w) {
    std::vector<std::pair<std::int64_t, int>> all;
    for (const auto& p : w.by_length()) all.emplace_back(p.tokens, p.sequences);
    return all;
  };
  using All = std::vector<std::pair<std::int64_t, int>>;
  config::Workload three = workload("prompt_tokens: [32K, 4K, 32K]");
  CHECK(three.batch == 3);
  CHECK(three.prompt_tokens == 32768);
  CHECK(three.mean_prompt() == Approx((4096 + 2 * 32768) / 3.0));
  CHECK(lengths(three) == All{{4096, 1}, {32768, 2}});
  CHECK(lengths(workload("prompt_tokens: [32K, 4K, 32K], batch: 5")) == All{{4096, 2}, {32768, 3}});
  three.set_batch(1);
  CHECK(lengths(three) == All{{32768, 1}});
  const config::Workload equal = workload("prompt_tokens: [4K, 4K]");
  CHECK(equal.prompts.empty());
  CHECK(lengths(equal) == All{{4096, 2}});
  // A list of more tokens than the model attends to is refused by its longest prompt.
  CHECK_THAT(refusal_of_run(kMachine + "policy: full\nworkload: {prompt_tokens: [4K, 200K]}\n"),
             Catch::Contains("204800 prompt"));
  CHECK_THAT(refusal_of_run(kMachine + "policy: full\nworkload: {prompt_tokens: []}\n"),
             Catch::Contains("run.yaml:4:27: workload: prompt_tokens: a list of 1 to 1024 prompts, found 0"));
  CHECK_THAT(refusal_of_run(kMachine + "policy: full\nworkload: {prompt_tokens: [4K, x]}\n"),
             Catch::Contains("run.yaml:4:32: prompt_tokens"));
  CHECK_THAT(refusal_of_run(kMachine + "policy: full\nworkload: {prompt_tokens: [4K, 8K]}\n"
                                       "deployment: {pipeline_parallel: 2}\n"),
             Catch::Contains("not with pipeline_parallel"));
  CHECK_THAT(
      refusal_of_run(kMachine + "policy: quest\nworkload: {prompt_tokens: [4K, 8K]}\nmatch: {tokens_attended: 64}\n"),
      Catch::Contains("not with match"));
}

}  // namespace
}  // namespace kvcast::tests
