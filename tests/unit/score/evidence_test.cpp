// LongBench's recipes under a policy that drops tokens of the prompt, and under one that selects at each step.
#include <catch2/catch.hpp>

#include "score/recall_replays.hpp"

namespace kvcast::tests {

using namespace score;

namespace {

const config::PolicyChoice kDropping = config::read_policy(
    config::parse_yaml("{name: snapkv, budget: 256, window: 8, pool: avg, pool_kernel: 5}", "test"));
const config::PolicyChoice kChoosing =
    config::read_policy(config::parse_yaml("{name: exact_topk, budget: 256, identification: free}", "test"));

struct Seen {
  double recall = 0;  // of the attention on targets, mean over steps
  double places = 0;  // share of the targets attended to, mean over steps
};

Seen seen(RecallReplays& samples, const TraceRequest& trace, const config::PolicyChoice& policy) {
  Seen mean;
  int steps = 0;
  for (const replay::StepRecall& step : samples.recall(trace, policy).steps) {
    if (step.targets == 0) continue;
    ++steps;
    mean.recall += step.recall();
    mean.places += step.mean_tokens() / static_cast<double>(step.targets);
  }
  REQUIRE(steps > 0);
  return {mean.recall / steps, mean.places / steps};
}

TEST_CASE("evidence that an answer uses in turn must all be kept, or selected one part at a time") {
  const TraceRequest paper{"longbench-papers", "llama-3.1-8b", 5000, 16, 1};
  RecallReplays samples("", 1);
  for (const config::PolicyChoice& policy : {kDropping, kChoosing}) samples.request(paper, policy);
  samples.run([](std::int64_t, std::int64_t) {});
  // Twelve spots of 17 tokens are 204 tokens, of which a step needs 102. Both fit 256, but only the policy that selects
  // at each step attends to those that the step needs.
  CHECK(samples.recall(paper, kChoosing).steps.front().targets == 102);
  CHECK(seen(samples, paper, kChoosing).recall > 0.98);
  CHECK(seen(samples, paper, kDropping).recall < 0.9);
  // The question refers to all of the evidence, so that far more of it is kept than of the text (5 %).
  CHECK(seen(samples, paper, kDropping).recall > 0.3);
}

TEST_CASE("a prompt's last queries keep no more of the subject of a summary than of the rest") {
  const TraceRequest report{"longbench-summary", "llama-3.1-8b", 5120, 16, 1};
  RecallReplays samples("", 1);
  for (const config::PolicyChoice& policy : {kDropping, kChoosing}) samples.request(report, policy);
  samples.run([](std::int64_t, std::int64_t) {});
  // 256 of 5120 tokens are a twentieth.
  const double share = seen(samples, report, kDropping).places;
  CHECK(share > 0.5 / 20);
  CHECK(share < 2.0 / 20);
  CHECK(seen(samples, report, kChoosing).places > 0.9);
}

}  // namespace
}  // namespace kvcast::tests
