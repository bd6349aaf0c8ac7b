#include <catch2/catch.hpp>

#include "replay/replay.hpp"
#include "support/select.hpp"
#include "synth/synthetic.hpp"
#include "trace/metadata.hpp"

namespace kvcast::tests {

namespace {

TEST_CASE("eviction by earlier questions loses what the last one asks for, a selection at each turn does not") {
  const trace::Recipe recipe = trace::read_recipe(trace::find_recipe("conversation"));
  trace::SynthShape shape;
  shape.n_layers = 8, shape.captured_layers = 1, shape.n_q_heads = 8, shape.n_kv_heads = 4;
  shape.prompt_tokens = 4096, shape.decode_steps = 8;
  const auto trace = trace::synthesize(recipe, shape);
  CHECK(trace::turns_of(trace->info()) == std::vector<std::int64_t>{0, 4096 - 96, 4096 - 64, 4096 - 32});
  const auto recall = [&](const char* name) {
    const auto layers = replay::prepare(*trace, 1);
    const auto policy = make(name, "budget: 128", {trace->info().prompt_tokens, trace->info().decode_steps});
    const replay::ReplayResult r = replay::replay(layers, *policy);
    double sum = 0;
    for (const replay::StepRecall& step : r.targets.steps)
      sum += step.recall() / static_cast<double>(r.targets.steps.size());
    return sum;
  };
  CHECK(recall("rocketkv_mt") > 0.9);
  CHECK(recall("rocketkv") < 0.8 * recall("rocketkv_mt"));
  CHECK(recall("snapkv") < 0.5);
}

}  // namespace
}  // namespace kvcast::tests
