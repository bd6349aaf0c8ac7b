// The number of steps that represent a context, and their positions.
#include "simulate/lowered.hpp"

#include <catch2/catch.hpp>

#include "support/select.hpp"
#include "unit/hardware/round_machine.hpp"

namespace kvcast::tests {

using simulate::Lowered;

namespace {

constexpr int kLayers = 4, kReplayed = 12;

config::Run small_run() {
  config::Run run;
  run.hardware = round_machine();
  run.model.layers = kLayers, run.model.hidden = 64, run.model.n_q_heads = 4, run.model.n_kv_heads = 2;
  run.model.head_dim = 16, run.model.ffn = 128, run.model.vocab = 1000;
  run.workload.prompt_tokens = 1000, run.workload.decode_tokens = 101, run.workload.batch = 1;
  run.framework.warmup_steps = 2, run.framework.measured_steps = 10;
  return run;
}

// Quest's counts in which a step attends to `more` pairs more than the one before.
Lowered lower_small(const config::Run& run, const std::string& policy, int more, bool all_warmup = false) {
  replay::ReplayResult replay;
  replay.prompt_tokens = 1000, replay.decode_steps = kReplayed;
  for (int layer = 0; layer < kLayers; ++layer) {
    replay::LayerCounts& counts = replay.layers.emplace_back();
    counts.layer = layer, counts.heads = 2;
    for (int i = 0; i < kReplayed * 2; ++i) {
      counts.counts.push_back({.attended = 100 + more * (i / 2), .scored = 10, .fetched = 32, .fetched_runs = 1});
    }
  }
  const auto made = make(policy, "budget: 128", {1000, 101});
  return simulate::lower_experiment({&run, made.get(), &replay},
                                    {.prefill = false, .parts = false, .all_warmup = all_warmup});
}

}  // namespace

TEST_CASE("two steps are measured at each context if all steps are the same work") {
  const Lowered lowered = lower_small(small_run(), "quest", 0);
  REQUIRE(lowered.contexts.size() == 3);
  CHECK(lowered.middle == 1);
  for (const simulate::DecodeSteps& steps : lowered.contexts) {
    CHECK(steps.warmup == 1);
    CHECK(steps.measured() == 2);
  }
  // No more steps than requested.
  config::Run run = small_run();
  run.framework.warmup_steps = 0, run.framework.measured_steps = 1;
  CHECK(lower_small(run, "quest", 0).contexts[0].warmup == 0);
  CHECK(lower_small(run, "quest", 0).contexts[0].measured() == 1);
}

TEST_CASE("if steps differ, all are measured at the middle context and the last two at the others") {
  const Lowered lowered = lower_small(small_run(), "quest", 1);
  CHECK(lowered.contexts[0].measured() == 2);
  CHECK(lowered.contexts[1].measured() == 10);
  CHECK(lowered.contexts[2].measured() == 2);
  // Both contexts draw the same steps: quest reads as many pairs at any context.
  const auto& middle = lowered.contexts[1].stream.blocks;
  const auto& last = lowered.contexts[2].stream.blocks;
  CHECK(last[1].traffic.kv_read == middle[9].traffic.kv_read);
  CHECK(last[2].traffic.kv_read == middle[10].traffic.kv_read);
}

TEST_CASE("all warm-up steps are used if asked for and if steps wait for work of the previous step") {
  CHECK(lower_small(small_run(), "freekv", 1).contexts[1].warmup == 1);
  CHECK(lower_small(small_run(), "freekv", 1, true).contexts[1].warmup == 2);
  CHECK(lower_small(small_run(), "quest", 1, true).contexts[1].warmup == 1);
}

TEST_CASE("replays that read and transfer the same amounts are lowered to the same work") {
  const config::Run run = small_run();
  const Lowered one = lower_small(run, "quest", 1);
  CHECK(same_work(one, lower_small(run, "quest", 1)));
  CHECK_FALSE(same_work(one, lower_small(run, "quest", 2)));
  CHECK_FALSE(same_work(lower_small(run, "quest", 0), lower_small(run, "freekv", 0)));
  Lowered other = one;
  other.contexts[0].stream.memory.at(0).bytes += 1;
  CHECK_FALSE(same_work(one, other));
  other = one;
  other.parts.push_back(one.contexts[0]);
  CHECK_FALSE(same_work(one, other));
}

TEST_CASE("many measured steps are consecutive") {
  config::Run run = small_run();
  run.framework.measured_steps = 50;
  replay::ReplayResult replay;
  replay.prompt_tokens = 1000, replay.decode_steps = 1, replay.growth = {.attended = 1};
  for (int layer = 0; layer < kLayers; ++layer) {
    replay::LayerCounts& counts = replay.layers.emplace_back();
    counts.layer = layer, counts.heads = 2;
    counts.counts.resize(2);
    for (policy::HeadCounts& head : counts.counts) head.attended = 1001;
  }
  const auto full = make("full", "", {1000, 101});
  const Lowered lowered = simulate::lower_experiment({&run, full.get(), &replay}, {.prefill = false, .parts = false});
  const auto& blocks = lowered.contexts[1].stream.blocks;
  REQUIRE(blocks.size() == 51);
  // Each further token adds 4 layers · 2 KV heads · keys and values of 16 numbers of 2 bytes.
  CHECK(blocks[50].traffic.kv_read - blocks[1].traffic.kv_read == 49 * 4 * 2 * 2 * 16 * 2);
}

}  // namespace kvcast::tests
