// The number of operations that the engine simulates for an experiment, as its batch grows.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "study/study.hpp"

namespace kvcast::tests {
namespace {

std::int64_t operations(const std::string& policy, int batch) {
  study::Point point;
  point.config = config::parse_yaml(
      fmt::format("model: llama-3.2-1b\nhardware: h100-sxm\npolicy: {}\n"
                  "workload: {{prompt_tokens: 2048, decode_tokens: 16, batch: {}, prefill_chunk: 1024, prefill_batch: "
                  "1}}\ntrace: {{recipe: needle, layers: 1, steps: 4}}\n",
                  policy, batch),
      "run.yaml");
  const result::Result result = study::run_all({std::move(point)}, {}).front();
  REQUIRE(result.has_times());
  REQUIRE(!result.experiment.effects.empty());  // intervals are part of the experiment
  return result.experiment.engine_ops;
}

TEST_CASE("an experiment simulates as many operations for 256 sequences as for 64") {
  for (const char* policy : {"full", "{name: quest, budget: 256}", "{name: freekv, budget: 256}"}) {
    INFO(policy);
    const std::int64_t at_4 = operations(policy, 4), at_64 = operations(policy, 64);
    CHECK(operations(policy, 256) == at_64);
    // Sixteen times the prompts: the first three of those that are read one after the other, one that stands for those
    // left out, and the last are simulated; large batches may simulate some steps more until the work settles.
    CHECK(at_64 < 2 * at_4);
  }
}

}  // namespace
}  // namespace kvcast::tests
