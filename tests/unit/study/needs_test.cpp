// Estimates of what a study takes, against what it takes.
#include "study/needs.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

using config::Node;

study::Point asked_point(const std::string& more, const std::string& workload = "") {
  const std::string run =
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 2048, decode_tokens: 16" + workload +
      "}\ntrace: {recipe: needle, layers: 2, steps: 6}\n" + more;
  return {config::parse_yaml(run, "run.yaml"), {}, {}};
}

study::Needs needs(const study::Point& point) { return study::needs_of(study::Study({point}), 1); }

TEST_CASE("a trace takes its keys, values, queries and scores in single precision") {
  // Two layers of 8 KV heads with 64 numbers at 2054 positions, keys and values; 32 query heads; the scores of 6 steps.
  const double pairs = 2.0 * 8 * 2054 * 64, scores = 32.0 * 6 * 2054;
  const study::Needs n = needs(asked_point("policy: full\n"));
  CHECK(n.bytes > 2 * 4 * (pairs + scores));
  CHECK(n.bytes < 10 * 2 * 4 * (pairs + scores));
  CHECK(needs(asked_point("policy: full\n", ", batch: 4")).bytes < 2 * n.bytes);  // a replay serves all sequences
}

TEST_CASE("the operations of an experiment are no more than estimated, and not far fewer", "[minutes]") {
  for (const char* workload : {"", ", prefill_chunk: 64", ", batch: 8, prefill_chunk: 256, prefill_batch: 2"}) {
    for (const char* policy : {"full", "quest", "h2o", "freekv", "infinigen"}) {
      const study::Point point = asked_point(fmt::format("policy: {}\n", policy), workload);
      const study::Study plan({point});
      std::int64_t ops = 0;
      study::run(plan, {}, [&](const study::Task&, result::Result&& r) { ops = r.experiment.engine_ops; });
      const double simulated = study::needs_of(plan, 1).seconds * 1e6;  // a million operations a second
      INFO(policy << workload << ": " << ops << " of " << simulated);
      CHECK(static_cast<double>(ops) < simulated);
    }
  }
}

TEST_CASE("a prompt in chunks of one token, and thousands of steps, are over a budget that names them") {
  const study::NeedLimits budget{4e9, 600};
  const auto refused = [&](const study::Point& point) {
    return error_of([&] { study::check_budget(needs(point), budget); });
  };
  CHECK(refused(asked_point("policy: full\n")) == "no error");
  study::Point chunks = asked_point("policy: full\n", ", prefill_chunk: 1");
  CHECK(refused(chunks) == "no error");  // 2048 chunks
  chunks.config = chunks.config.with("workload.prompt_tokens", Node::scalar("32768", {}));
  chunks.config = chunks.config.with("model", Node::scalar("llama-3.1-8b", {}));  // 32 layers
  CHECK_THAT(refused(chunks), Catch::Contains("32768 prefill chunks") && Catch::Contains("a request may take 4 GB"));
  const study::Point steps =
      asked_point("policy: full\nframework: {measured_steps: 4096, sampled_contexts: 16, warmup_steps: 4096}\n");
  CHECK_THAT(refused(steps), Catch::Contains("decode steps"));
  study::Point rows = asked_point("policy: h2o\n");
  rows.config = rows.config.with("workload.prompt_tokens", Node::scalar("131000", {}));
  rows.config = rows.config.with("trace.layers", Node::scalar("16", {}));
  CHECK_THAT(refused(rows), Catch::Contains("GB of memory") && Catch::Contains("131006 tokens"));
}

TEST_CASE("what was done before counts, and shared work counts once") {
  const study::Needs n = needs(asked_point("policy: full\n"));
  CHECK_NOTHROW(study::check_budget(n, {0, 2 * n.seconds}, 0.5 * n.seconds));
  CHECK_THROWS_AS(study::check_budget(n, {0, 2 * n.seconds}, 1.5 * n.seconds), study::OverBudget);
  const study::Study two({asked_point("policy: full\n"), asked_point("policy: full\n", ", batch: 2")});
  CHECK(study::needs_of(two, 1).seconds < 2 * n.seconds);
}

}  // namespace
}  // namespace kvcast::tests
