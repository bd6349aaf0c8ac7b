// Pipelines of two workers: their order, their predicted times computed by hand, and threads that keep to the order.
#include "validate/pipeline.hpp"

#include <catch2/catch.hpp>

#include "validate/cpu_pipeline.hpp"

using namespace kvcast::validate;

namespace {

// Rates of 1 byte per second for everything, no hand-over time, and no interference between the workers.
PipelineRates unit_rates() {
  PipelineRates rates;
  rates.bytes_per_s = {1, 1, 1};
  rates.together = {1, 1, 1};
  return rates;
}

double steady_step(Scheme scheme, const LayerBytes& bytes, const PipelineRates& rates) {
  return predict_steps(make_pipeline(scheme, bytes, 3, 20), rates).back();
}

}  // namespace

TEST_CASE("dense work alone takes the sum of its parts") {
  CHECK(steady_step(Scheme::kAlone, {2, 3, 5, 100}, unit_rates()) == Approx(3 * (2 + 3 + 5)));
}

TEST_CASE("a blocking recall is fully exposed") {
  CHECK(steady_step(Scheme::kBlocking, {2, 3, 5, 4}, unit_rates()) == Approx(3 * (2 + 4 + 3 + 5)));
}

TEST_CASE("a speculative recall is hidden until the second worker is the slower one") {
  // A recall may take until its layer is reached again, so that some steps pass before a slow worker delays the first
  // one. Three recalls of 4 s are hidden in a step of 30 s; three of 11 s take 33 s per step.
  CHECK(steady_step(Scheme::kSpeculative, {2, 3, 5, 4}, unit_rates()) == Approx(30));
  CHECK(steady_step(Scheme::kSpeculative, {2, 3, 5, 11}, unit_rates()) == Approx(33));
}

TEST_CASE("attention on the CPU is hidden only by the static attention") {
  CHECK(steady_step(Scheme::kBeside, {2, 3, 5, 1}, unit_rates()) == Approx(30));
  CHECK(steady_step(Scheme::kBeside, {2, 3, 5, 7}, unit_rates()) == Approx(3 * (2 + 7 + 5)));
}

TEST_CASE("two workers that share a resource slow each other down while both are busy") {
  PipelineRates rates = unit_rates();
  rates.together = {0.5, 0.5, 0.5};
  // Both run 3 s of work at half speed, 6 s; then the second has 4 s left and runs them alone.
  CHECK(steady_step(Scheme::kBeside, {2, 3, 5, 7}, rates) == Approx(3 * (2 + 6 + 4 + 5)));
}

TEST_CASE("a hand-over costs its time in each direction") {
  PipelineRates rates = unit_rates();
  rates.hand_over = 0.25;
  CHECK(steady_step(Scheme::kBlocking, {2, 3, 5, 4}, rates) == Approx(3 * (2 + 0.25 + 4 + 0.25 + 3 + 5)));
}

TEST_CASE("threads follow the order of the pipeline") {
  PipelineMemory memory(1 << 20, 1 << 20);
  for (const Scheme scheme : {Scheme::kAlone, Scheme::kSpeculative, Scheme::kBlocking, Scheme::kBeside}) {
    const Pipeline p = make_pipeline(scheme, {4096, 4096, 4096, 32768}, 2, 20);
    const PipelineRun run = run_pipeline(p, memory);
    REQUIRE(run.steps.size() == 20);
    REQUIRE(run.disturbed.size() == 20);
    const std::vector<double>& ends = run.op_ends;
    REQUIRE(ends.size() == p.ops.size());
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
      for (const int id : p.ops[i].after) CHECK(ends[static_cast<std::size_t>(id)] <= ends[i]);
    }
  }
  CHECK(memory.checksum() > 0);
}

TEST_CASE(
    "every pipeline is measured and judged by steps and by exposed transfers, or the suite reports that it cannot be") {
  PipelineTest small;
  small.rounds = 4, small.layers = 2, small.scale = 0.01, small.memory_mib = 4;
  const Suite suite = cpu_pipeline(small);
  if (suite.cases.empty()) {  // a busy machine
    CHECK(suite.status.find("not judged") != std::string::npos);
    CHECK(suite.passed());
    return;
  }
  std::size_t steps = 0;
  for (const Case& c : suite.cases) {
    steps += c.group == "step time" ? 1 : 0;
    CHECK(c.expected.value() > 0);
    CHECK(c.predicted.has_value());
  }
  CHECK(steps == 10);
  REQUIRE(suite.budgets.size() == 2);
  CHECK(suite.budgets[0].value.has_value());
}
