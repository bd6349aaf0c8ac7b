// Reasons for a difference, as text, without rounding errors.
#include <catch2/catch.hpp>
#include <cmath>

#include "plan/question.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using Catch::Contains;

Answer why(const std::string& of, const std::string& against) {
  const config::Node plan = config::parse_yaml(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: full\nframework: transformers-4.48-eager\nscore: none\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 32, batch: 2}\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
      "plan:\n  - why: {metric: tpot, if_free: false, of: {policy: " +
          of + "}, against: {policy: " + against + "}}\n",
      "plan.yaml");
  Experiments experiments({});
  return read_plan(plan).front()->answer(experiments);
}

bool has_smaller_parts(const Answer& answer) {
  for (const std::string& line : answer.details) {
    if (line.starts_with("smaller parts together")) return true;
  }
  return false;
}

TEST_CASE("parts of a difference that are only rounding errors are not printed") {
  // Python's time to launch is all of the difference; the other parts are equal except for rounding.
  const Answer launches = why("{name: quest, budget: 256}", "full");
  CHECK_THAT(launches.text, Contains("the largest difference on the critical path is launch (host thread) +"));
  CHECK_THAT(launches.text, !Contains("e-") && !Contains(" ps"));
  CHECK_FALSE(has_smaller_parts(launches));
  double rounding = 0;
  for (const auto& part : launches.data["parts"]) {
    const double seconds = part["seconds"];
    if (std::abs(seconds) < 1e-9) rounding += std::abs(seconds);
  }
  CHECK(rounding > 0);  // so that there was something to leave out
}

TEST_CASE("a time to first token differs by waiting, prefill and interference") {
  const std::string service =
      "model: llama-3.2-1b\nhardware: l40s\nscore: none\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
      "traffic: {rate: 15, requests: 60, prompt_tokens: 4000, output_tokens: 64}\n";
  Experiments experiments({});
  for (const std::string which : {"mean", "p99"}) {
    const config::Node plan = config::parse_yaml(
        service + "policy: full\nplan:\n  - why: {metric: serving.ttft_s." + which +
            ", if_free: false, of: {scheduler.max_num_seqs: 2}, against: {scheduler.max_num_seqs: 64}}\n",
        "plan.yaml");
    const Answer answer = read_plan(plan).front()->answer(experiments);
    double difference = 0, of = 0;
    for (const auto& part : answer.data["parts"]) {
      difference += part["seconds"].get<double>(), of += part["of"].get<double>();
    }
    CHECK(answer.data["parts"].size() == 5);
    CHECK(difference == Approx(answer.data["difference"].get<double>()));
    CHECK(of == Approx(answer.data["seconds"]["of"].get<double>()));
    // Two at a time: requests wait for each other.
    CHECK(answer.data["parts"][0]["kind"] == "queue");
    CHECK(answer.data["binding_resource"]["of"] == "waiting");
    CHECK_THAT(answer.text, Contains("queue (waiting) +"));
  }
  CHECK_THROWS_WITH(read_plan(config::parse_yaml("model: llama-3.2-1b\nhardware: l40s\npolicy: full\n"
                                                 "plan:\n  - why: {metric: serving.ttft_s.mean, of: {policy: quest}, "
                                                 "against: {policy: full}}\n",
                                                 "plan.yaml")),
                    Contains("traffic"));
}

}  // namespace
}  // namespace kvcast::tests
