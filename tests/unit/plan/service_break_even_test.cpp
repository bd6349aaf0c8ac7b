// Break-evens over the rate of a service: where one of two settings no longer serves what the other does.
#include <catch2/catch.hpp>

#include "plan/question.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using Catch::Contains;

const std::string kService =
    "model: llama-3.2-1b\nhardware: l40s\npolicy: full\nscore: none\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
    "traffic: {rate: 1, requests: 200, prompt_tokens: 2000, output_tokens: 64, slo: {ttft: 500 ms}}\n";

Answer over_rates(const std::string& of, const std::string& against, const std::string& range) {
  Experiments experiments({});
  return read_plan(config::parse_yaml(kService + "plan:\n  - break_even: {key: traffic.rate, " + range +
                                          ", metric: serving.slo_share, of: {scheduler.max_num_seqs: " + of +
                                          "}, against: {scheduler.max_num_seqs: " + against + "}}\n",
                                      "plan.yaml"))
      .front()
      ->answer(experiments);
}

double share(const nlohmann::json& sample, const char* side) { return sample.at(side).at("value"); }

TEST_CASE("two settings serve the same share up to a rate, whichever is named first", "[minutes]") {
  const Answer few = over_rates("2", "64", "from: 0.5, to: 60"), many = over_rates("64", "2", "from: 0.5, to: 60");
  REQUIRE(!few.data["crossings"].empty());
  const auto& first = few.data["crossings"][0];
  CHECK(first["below"]["better"] == "neither");
  CHECK(first["above"]["better"] == "scheduler.max_num_seqs 64");
  CHECK(first["value"] == many.data["crossings"][0]["value"]);
  CHECK(many.data["crossings"][0]["below"]["better"] == "neither");
  CHECK(many.data["crossings"][0]["above"]["better"] == "scheduler.max_num_seqs 64");
  const double value = first["value"];
  for (const auto& sample : few.data["samples"]) {
    INFO(sample.dump());
    const double x = sample["x"], of = share(sample, "of"), against = share(sample, "against");
    if (x <= value) CHECK(of == against);
    if (x > 1.01 * value && x < 2 * value) CHECK(of < against);
  }
  CHECK_THAT(few.text, Contains("max_num_seqs 64 is better"));
}

TEST_CASE("rates at which all requests keep the SLO are equal") {
  const Answer answer = over_rates("32", "64", "from: 0.1, to: 0.5");
  CHECK(answer.data["crossings"].empty());
  CHECK(answer.data["always"] == "neither");
  CHECK_THAT(answer.text, Contains("are equal"));
}

}  // namespace
}  // namespace kvcast::tests
